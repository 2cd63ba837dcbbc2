"""`tessera parity` compares the simulator with a live server. docs/parity.md has results from a quiet machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import onnx
import pytest
from fixtures.graphs import FLOAT, Graph
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


# Widths of the layers: the best variant takes about four times as long as the other one.
WIDTHS = {"mlp-wide": 1024, "mlp-narrow": 512}
QUALITIES = {"mlp-wide": 0.75, "mlp-narrow": 0.7}
MAPS = ("--map", "wide=mlp-wide", "--map", "narrow=mlp-narrow")
FAMILY = """
name = "family"
seed = 5
duration = "4s"
warmup = "1s"
[lanes]
count = 1
[models.wide]
profile = { alpha = "1ms", beta = "1ms", max_batch = 4 }
[models.narrow]
profile = { alpha = "1ms", beta = "1ms", max_batch = 4 }
[families.images]
slo = "2s"
rate = 30.0
variants = { wide = 0.9, narrow = 0.8 }
"""


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """Two real models with qualities as `tessera variants measure` stores them."""
    for name, width in WIDTHS.items():
        graph = Graph()
        value = graph.input("x", FLOAT, ["N", 64])
        for rows, columns in [(64, width), (width, width), (width, width), (width, 10)]:
            value = graph.node("Relu", graph.node("MatMul", value, graph.weight(rows, columns)))
        file = tmp_path / "models" / name / "1" / "model.onnx"
        file.parent.mkdir(parents=True)
        onnx.save(graph.output(value, "y", FLOAT, ["N", 10]).model(), file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        quality = {"quality": QUALITIES[name], "kind": "accuracy", "rows": 100, "digest": digest}
        (tmp_path / "models" / name / "quality.json").write_text(json.dumps(quality))
    return tmp_path


def test_families_of_real_models_have_their_measured_times_and_qualities(family: Path) -> None:
    done = parity(write(family / "family.toml", FAMILY), "--repository", family / "models", *MAPS, "--json")
    assert done.returncode in (WITHIN, APART), done.stderr
    told = json.loads(done.stdout)
    assert told["offered"]["simulated"] == told["offered"]["measured"] > 60, told["offered"]
    rows = {row["figure"]: row for row in told["models"][0]["rows"]}
    assert rows["attainment"]["simulated"] == rows["attainment"]["measured"] == 1.0, rows
    # At 30 requests a second, the best variant answers all of them.
    assert rows["quality"]["simulated"] == rows["quality"]["measured"] == 0.75, rows
    assert "qualities of the repository: mlp-narrow 0.7, mlp-wide 0.75" in done.stderr, done.stderr


@pytest.mark.parametrize(("name", "said"), [("other", "the workload has no model `other`"), ("images", "is a family: expected a model")])
def test_maps_name_models_of_the_workload(family: Path, name: str, said: str) -> None:
    done = parity(write(family / "family.toml", FAMILY), "--repository", family / "models", *MAPS, "--map", f"{name}=mlp-wide")
    assert done.returncode == 1 and said in done.stderr, done.stderr


def test_the_quality_of_a_real_variant_must_have_been_measured(family: Path) -> None:
    (family / "models/mlp-wide/quality.json").unlink()
    done = parity(write(family / "family.toml", FAMILY), "--repository", family / "models", *MAPS)
    assert done.returncode == 1, done.stdout
    assert "families.images.variants" in done.stderr and "tessera variants measure" in done.stderr, done.stderr
