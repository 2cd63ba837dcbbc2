"""The rules in deploy/prometheus: their own tests, and a real Prometheus that watches a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

RULES = ROOT / "deploy" / "prometheus"
PROMETHEUS = Path(os.environ["PROMETHEUS"])


def promtool(*arguments: str) -> str:
    command = [str(PROMETHEUS.with_name("promtool")), *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=RULES)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_the_rules_are_valid_and_pass_their_tests() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "tessera.rules.yml")
    promtool("test", "rules", "tessera.rules.test.yml")


def test_every_metric_of_the_rules_exists_and_every_alert_has_a_test_and_a_section_of_the_runbook() -> None:
    rules = (RULES / "tessera.rules.yml").read_text()
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text()
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
        (tmp_path / "rules.yml").write_text((RULES / "tessera.rules.yml").read_text().replace("interval: 30s", "interval: 1s"))
        (tmp_path / "prometheus.yml").write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
            "rule_files: [rules.yml]\n"
            f"scrape_configs: [{{ job_name: tessera, static_configs: [{{ targets: ['{server.announced['metrics'].removeprefix('http://').removesuffix('/metrics')}'] }}] }}]\n"
        )
        log = (tmp_path / "log").open("w+")
        command = [PROMETHEUS, "--config.file", tmp_path / "prometheus.yml", "--storage.tsdb.path", tmp_path / "data"]
        watcher = subprocess.Popen(
            [*command, "--web.listen-address", "127.0.0.1:0"], stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path
        )
        stop = threading.Event()

        def ask() -> None:
            client = Client(server)
            while not stop.is_set():
                client.infer("m", [[1.0, 2.0, 3.0, 4.0]])

        crowd = [threading.Thread(target=ask) for _ in range(6)]
        try:
            for thread in crowd:
                thread.start()

            def address() -> str | None:
                found = re.search(r"127\.0\.0\.1:[1-9]\d*", (tmp_path / "log").read_text())
                return found.group() if found else None

            def ready() -> bool:
                if not address():
                    return False
                try:
                    with urllib.request.urlopen(f"http://{address()}/-/ready", timeout=10):
                        return True
                except urllib.error.HTTPError:
                    return False

            until(ready, lambda: (tmp_path / "log").read_text())

            def value(query: str) -> float | None:
                url = f"http://{address()}/api/v1/query?query={urllib.parse.quote(query)}"
                found = get(url)["data"]["result"]
                return float(found[0]["value"][1]) if found else None

            until(lambda: address() and (value("tessera:requests_bad:ratio5m") or 0) > 0.1, "refused requests are seen", 60)
            assert value("tessera_model_ready") == 1
            assert value("tessera_objective_seconds") == 0.05
            assert value("tessera_model_lanes") == 1
            assert value("tessera_build_info") == 1
            firing = get(f"http://{address()}/api/v1/rules")["data"]["groups"]
            health = {rule["name"]: rule["health"] for group in firing for rule in group["rules"]}
            assert set(health.values()) == {"ok"}, json.dumps(health)
        finally:
            stop.set()
            for thread in crowd:
                thread.join(30)
            watcher.terminate()
            watcher.wait(30)
            log.close()
        warned = [line for line in server.logged("") if "requests were not answered" in line.get("message", "")]
        assert 1 <= len(warned) <= 10 and "deadline_unmeetable" in warned[0]["message"], warned
