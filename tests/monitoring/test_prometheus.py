"""The rules in deploy/prometheus: their own tests, and a real Prometheus that watches a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.prometheus import RULES, Prometheus  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.traffic import Clients  # noqa: E402
from fixtures.wait import until  # noqa: E402

PROMTOOL = Path(os.environ["PROMETHEUS"]).with_name("promtool")


def promtool(*arguments: str) -> str:
    told = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, cwd=RULES)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_the_rules_are_valid_and_pass_their_tests() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "tessera.rules.yml")
    promtool("test", "rules", "tessera.rules.test.yml")


def test_every_metric_of_the_rules_exists_and_every_alert_has_a_test_and_a_section_of_the_runbook() -> None:
    rules = (RULES / "tessera.rules.yml").read_text()
    pages = ("reference/metrics.md", "fleet-kubernetes.md")
    reference = "".join((ROOT / "docs" / page).read_text() for page in pages)
    used = set(re.findall(r"\btessera_[a-z_]+", rules))
    assert len(used) >= 10
    missing = {name for name in used if f"`{name}`" not in reference}
    assert not missing, missing
    tests = (RULES / "tessera.rules.test.yml").read_text()
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE)
    alerts = re.findall(r"alert: (\w+)", rules)
    assert sorted(alerts) == sorted(name for name in sections if name.startswith("Tessera")), "docs/operate.md"
    assert all(f"alertname: {alert}" in tests for alert in alerts), alerts
    assert all(f"docs/operate.md#{alert.lower()}\n" in rules for alert in alerts)


def test_a_prometheus_sees_requests_miss_their_objective(tmp_path: Path) -> None:
    echo(alpha_us=20_000).place(tmp_path / "repository", "m")
    config = '[lanes]\ncount = 1\n[models.m]\nslo = "50ms"\n'
    with Tessera(tmp_path / "repository", config) as server:
        server.wait_ready()
        with Prometheus(server, tmp_path / "prometheus") as prometheus, Clients(server, {"m": 6}):
            value = prometheus.wait_ready().value
            until(lambda: (value("tessera:requests_bad:ratio5m") or 0) > 0.1, "refused requests are seen", 60)
            assert value("tessera_model_ready") == 1
            assert value("tessera_objective_seconds") == 0.05
            assert value("tessera_model_lanes") == 1
            assert value("tessera_build_info") == 1
            groups = prometheus.api("rules")["groups"]
            health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
            assert set(health.values()) == {"ok"}, json.dumps(health)
        warned = [line for line in server.logged("") if "requests were not answered" in line.get("message", "")]
        assert 1 <= len(warned) <= 10 and "deadline_unmeetable" in warned[0]["message"], warned
