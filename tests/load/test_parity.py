"""`tessera parity` compares the simulator with a live server. docs/parity.md has results from a quiet machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from load.command import RAN, SECONDS, write

WITHIN, APART = RAN, 3
WORKLOAD = """
name = "short"
seed = 5
duration = "4s"
warmup = "1s"
[lanes]
count = 4
[models.wide]
count = 2
slo = "2s"
profile = { alpha = "1ms", beta = "9ms", max_batch = 8 }
rate = 60.0
row_bytes = 64
"""


def parity(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [os.environ["TESSERA_BIN"], "parity", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_simulator_and_server_get_the_same_requests_and_answer_all(tmp_path: Path) -> None:
    done = parity(write(tmp_path / "short.toml", WORKLOAD), "--json")
    assert done.returncode in (WITHIN, APART), done.stderr
    told = json.loads(done.stdout)
    offered = told["offered"]
    assert offered["simulated"] == offered["measured"] > 200, offered
    everything, *models = told["models"]
    assert [model["name"] for model in models] == ["wide-0", "wide-1"]
    rows = {row["figure"]: row for row in everything["rows"]}
    # With an objective of 2 s, no request is late on a busy machine.
    assert rows["attainment"]["simulated"] == rows["attainment"]["measured"] == 1.0, rows
    assert rows["goodput/s"]["within"], rows
    # Latencies include the model's own time of 10 ms.
    assert rows["p50 ms"]["simulated"] >= 10 and rows["p50 ms"]["measured"] >= 10, rows
    assert told["request_overhead_ms"] > 0 and told["batch_overhead_ms"] > 0, told


def test_workloads_that_cannot_be_compared_are_rejected(tmp_path: Path) -> None:
    failing = WORKLOAD.replace("count = 4", 'count = 4\n[[lanes.failures]]\nlane = 1\nfrom = "2s"')
    done = parity(write(tmp_path / "failing.toml", failing))
    assert done.returncode == 1 and "lanes that fail or stall cannot be had" in done.stderr, done.stderr
    unprofiled = "\n".join(line for line in WORKLOAD.splitlines() if not line.startswith("profile"))
    done = parity(write(tmp_path / "unprofiled.toml", unprofiled))
    assert done.returncode == 1 and "profile: missing" in done.stderr, done.stderr
    done = parity(write(tmp_path / "short.toml", WORKLOAD), "--repository", tmp_path)
    assert done.returncode == 1 and "wide-0" in done.stderr + done.stdout or "one a core" in done.stderr, done.stderr
