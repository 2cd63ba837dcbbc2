"""The dashboard in deploy/grafana: its layout and texts, and every expression in a real Prometheus that watches a real server."""

from __future__ import annotations

import json
import math
import re
import sys
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import language  # noqa: E402
from fixtures.prometheus import RULES, Prometheus  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.traffic import Clients  # noqa: E402
from fixtures.wait import until  # noqa: E402

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "tessera.json").read_text())
ROWS = ["Now", "Why", "Tenants", "Devices", "Server"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
COLUMNS = 24

# Metrics that the server of this test does not export. An expression without them must return a series.
NOT_HERE = {
    "tessera_batch_time_over_predicted": "no gpulets",
    "tessera_device_up": "no gpulets",
    "tessera_gpu_utilisation": "no GPU",
    "tessera_gpu_sm_active": "no GPU",
    "tessera_gpu_memory_used_bytes": "no GPU",
    "tessera_gpu_memory_total_bytes": "no GPU",
    "tessera_gpu_throttled": "no GPU",
    "tessera_certificate_expiry_seconds": "no TLS",
}
# What Prometheus adds to each series, and its own series of firing alerts.
TARGET_LABELS = {"job", "instance"}
ALERT_LABELS = {"alertname", "alertstate", "severity", "model"}
KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "Inf"}

# One lane, which the clients of `m` overload. The collector of telemetry does not answer.
CONFIG = """
[lanes]
count = 1
[models.m]
slo = "50ms"
[tenants.search]
device_seconds_per_second = 0.5
requests_per_second = 10.0
[telemetry]
endpoint = "http://127.0.0.1:9"
[request_log]
access_log = "{folder}/access.log"
[trace]
dir = "{folder}"
level = "TIMESTAMPS"
"""


def row_of(panel: dict) -> str:
    above = [row for row in DASHBOARD["panels"] if row["type"] == "row" and row["gridPos"]["y"] < panel["gridPos"]["y"]]
    return max(above, key=lambda row: row["gridPos"]["y"])["title"]


def documented() -> dict[str, set[str]]:
    """Labels of each series name that the reference and the recording rules know."""
    known = {"ALERTS": ALERT_LABELS | TARGET_LABELS}
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for name, kind, labels in re.findall(r"^\| `((?:tessera|process)_\w+)` \| ([^|]+) \| ([^|]*) \|", reference, re.MULTILINE):
        labels = set(re.findall(r"`(\w+)`", labels)) | TARGET_LABELS
        if kind.startswith("histogram"):
            known |= {f"{name}_sum": labels, f"{name}_count": labels, f"{name}_bucket": labels | {"le"}}
        else:
            known[name] = labels
    rules = (RULES / "tessera.rules.yml").read_text()
    return known | {name: {"model"} for name in re.findall(r"record: (\S+)", rules)}


def without_strings(expression: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)


def names(expression: str) -> set[str]:
    """Every identifier of an expression that is not a function, a label or a keyword: the names of series."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", without_strings(expression))
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", bare)
    return set(re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\w|:|\s*\()", bare)) - KEYWORDS


def filled_in(expression: str, chosen: dict[str, str]) -> str:
    """The expression as Grafana sends it: an hour in steps of 15 s, of a Prometheus that scrapes every second."""
    for variable, value in ({"__rate_interval": "16s", "__range": "1h"} | chosen).items():
        expression = expression.replace(f"${variable}", value)
    assert "$" not in expression, expression
    return expression


def test_it_can_be_imported_and_has_its_variables() -> None:
    assert DASHBOARD["schemaVersion"] == 39 and DASHBOARD["id"] is None
    (source,) = DASHBOARD["__inputs"]
    assert (source["name"], source["pluginId"]) == ("DS_PROMETHEUS", "prometheus")
    variables = DASHBOARD["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["job", "instance", "model"]
    assert all(variable["includeAll"] and variable["multi"] and variable["allValue"] == ".*" for variable in variables)
    queried = [*PANELS, *variables, *(target for panel in PANELS for target in panel["targets"])]
    assert all(one["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"} for one in queried)
    required = {one["id"] for one in DASHBOARD["__requires"] if one["type"] == "panel"}
    assert required == {panel["type"] for panel in PANELS}


def test_panels_do_not_overlap_and_have_a_unit_and_a_description() -> None:
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"] == ROWS
    assert 20 <= len(PANELS) <= 35
    for values in ([panel["id"] for panel in DASHBOARD["panels"]], [panel["title"] for panel in PANELS], EXPRESSIONS):
        assert sorted(values) == sorted(set(values)), "each id, title and expression once"
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"].get("unit"), f"{panel['title']}: no unit"
        assert panel.get("description"), f"{panel['title']}: no description"
        letters = [target["refId"] for target in panel["targets"]]
        assert letters and len(letters) == len(set(letters)), f"{panel['title']}: {letters}"
    cells = {}
    for panel in DASHBOARD["panels"]:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        assert x >= 0 and w > 0 and h > 0 and x + w <= COLUMNS, f"{panel['title']} is wider than the page"
        cells[panel["title"]] = {(column, line) for column in range(x, x + w) for line in range(y, y + h)}
    overlaps = [(one, other) for one, other in combinations(cells, 2) if cells[one] & cells[other]]
    assert not overlaps, overlaps


def test_texts_use_the_words_of_the_glossary_and_name_what_exists() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE)
    sections = {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}
    titles = tuple(panel["title"] for panel in PANELS)
    named = set()
    for panel in PANELS:
        text = f"{panel['title']}. {panel['description']}"
        assert not [found.group() for rule, _ in language.RULES if (found := rule.search(text))], text
        named |= set(re.findall(r"docs/operate\.md#([\w-]+)", text))
        leads = re.findall(r"[Ll]ook at ([A-Z].*)", text)
        assert all(lead.startswith(titles) for lead in leads), f"{panel['title']}: a panel that does not exist: {leads}"
    assert len(named) >= 5 and named <= sections, named - sections


def test_every_expression_uses_metrics_and_labels_that_exist() -> None:
    known = documented()
    used: set[str] = set()
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"]
            found = names(expression)
            assert found and found <= set(known), f"{panel['title']}: no such metric: {sorted(found - set(known))}"
            used |= found
            bare = without_strings(expression)
            for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", bare):
                wrong = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - known[name]
                assert not wrong, f"{panel['title']}: `{name}` has no label {wrong}"
            grouped = re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", bare)
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            wrong = {*re.findall(r"\w+", " ".join(grouped)), *shown} - set().union(*(known[name] for name in found))
            assert not wrong, f"{panel['title']}: {found} have no label {wrong}"
            counters = re.findall(r"\b(?:rate|increase)\(([\w:]+)", bare)
            assert all(re.search(r"_(total|sum|count|bucket)$", name) for name in counters), expression
            assert {name for name in found if name.endswith(("_sum", "_count", "_bucket"))} <= set(counters), expression
    assert used >= {name for name in known if name.startswith("tessera:requests_bad:ratio") and "30m" not in name}
    assert used >= set(NOT_HERE), "NOT_HERE lists metrics that no panel uses"


def test_every_expression_is_valid_and_returns_series_after_traffic(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    echo(alpha_us=20_000).place(repository, "m")
    echo(alpha_us=2_000, max_batch=8).place(repository, "n")
    with Tessera(repository, CONFIG.format(folder=tmp_path)) as server, Prometheus(server, tmp_path / "prometheus") as prometheus:
        server.wait_ready()
        prometheus.wait_ready()
        target = re.escape(server.announced["metrics"]).replace("\\", "\\\\")
        everything = {"job": ".*", "instance": ".*", "model": ".*"}
        chosen = {"job": "tessera", "instance": target, "model": "(m|n)"}
        with Clients(server, {"m": 6, "n": 2}):

            def numbers(expression: str, choice: dict[str, str]) -> list[float]:
                return [value for _, value in prometheus.query(filled_in(expression, choice)) if not math.isnan(value)]

            for panel in (panel for panel in PANELS if row_of(panel) == "Now"):
                for expression in (target["expr"] for target in panel["targets"]):
                    until(lambda: numbers(expression, everything), f"{panel['title']}: a value of {expression}", 60)
            for panel in PANELS:
                for expression in (target["expr"] for target in panel["targets"]):
                    for choice in (everything, chosen):
                        found = numbers(expression, choice)
                        assert found or names(expression) & set(NOT_HERE), f"{panel['title']}: nothing from {expression}"
            exported = set(prometheus.api("label/__name__/values"))
            missing = set().union(*map(names, EXPRESSIONS)) - exported - set(NOT_HERE)
            # These appear with the first violation and the first alert.
            assert missing <= {"tessera_invariant_violations_total", "ALERTS"}, missing

            def labels(expression: str) -> list[str]:
                return [" ".join(series.values()) for series, _ in prometheus.query(filled_in(expression, everything))]

            (alerts,) = (panel for panel in PANELS if panel["title"] == "Alerts firing")
            until(lambda: any("TesseraObjectiveBurnsFast m page" in one for one in labels(alerts["targets"][0]["expr"])), "an alert")
            (ready,) = (panel for panel in PANELS if panel["title"] == "Models not ready")
            assert labels(ready["targets"][0]["expr"]) == ["all models ready"]
            for variable in DASHBOARD["templating"]["list"]:
                query = variable["query"]["query"]
                metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
                assert names(metric) <= exported, query
                offered = {series.get(label) for series, _ in prometheus.query(filled_in(metric, everything))}
                assert offered and None not in offered, query
