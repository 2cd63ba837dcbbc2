"""`tessera load` against a real Triton and a real MLServer, at low rates."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures import models
from load.command import FAILED, assert_all_answered, load, run, write
from oracle import mlserver, triton
from oracle.child import CannotRun, Child

SHORT = ("--rate", 40, "--duration", "2s", "--warmup", "500ms")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    for name in ("simple", "identity_fp32", "identity_bytes"):
        models.place(folder, name, models.fixtures()[name])
    return folder


def started(server: Child) -> Iterator[Child]:
    with server:
        server.wait_ready()
        yield server


@pytest.fixture(scope="module")
def tritonserver(request: pytest.FixtureRequest, repository: Path, tmp_path_factory) -> Iterator[Child]:
    wrapped = tmp_path_factory.mktemp("triton")
    try:
        triton.wrap(repository, wrapped, "max_queue_delay_microseconds: 100")
        yield from started(triton.Triton.on_free_ports(request.config.getoption("--venv") / "oracle", wrapped))
    except CannotRun as reason:
        pytest.skip(f"no Triton on this machine: {reason}")


@pytest.fixture(scope="module")
def ml_server(request: pytest.FixtureRequest, repository: Path, tmp_path_factory) -> Iterator[Child]:
    if not request.config.getoption("--long"):
        pytest.skip("MLServer: only with --long")
    wrapped = tmp_path_factory.mktemp("mlserver")
    try:
        mlserver.wrap(repository, wrapped)
        yield from started(mlserver.MLServer(request.config.getoption("--venv") / "mlserver", wrapped, 0))
    except (CannotRun, subprocess.CalledProcessError) as reason:
        pytest.skip(f"no MLServer on this machine: {reason}")


def check(url: str, tmp_path: Path, *tensors: object) -> dict:
    """Test a model with two inputs by its metadata, and another by samples with known answers. Returns the first report."""
    report = run(url, "--model", "simple", "--range", "INPUT0=0..9", *SHORT, *tensors)
    assert_all_answered(report)
    assert report["total"]["offered"] > 30
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.5, -3.0]}
    right = {"inputs": [tensor], "expect": [{**tensor, "name": "OUTPUT0"}]}
    wrong = {"inputs": [tensor], "expect": [{**tensor, "name": "OUTPUT0", "data": [1.0, 2.5, 3.0]}]}
    samples = write(tmp_path / "samples.jsonl", f"{json.dumps(right)}\n{json.dumps(wrong)}\n")
    found = run(url, "--model", "identity_fp32", "--samples", samples, *SHORT, *tensors)
    total = found["total"]
    assert set(total["failed"]) == {"wrong_answer"}, found["said"]
    assert abs(total["failed"]["wrong_answer"] - total["answered"]) <= 1
    assert "element 2: expected 3, got -3" in found["said"]["wrong_answer"]
    return report


@pytest.mark.parametrize("tensors", ["binary", "json"])
def test_triton_over_http(tritonserver: Child, tmp_path: Path, tensors: str) -> None:
    report = check(tritonserver.base_url, tmp_path, "--tensors", tensors)
    assert report["target"]["server"].startswith("triton ")
    check_batches(report)


def test_triton_over_grpc(tritonserver: Child, tmp_path: Path) -> None:
    report = check(f"grpc://{tritonserver.grpc_address}", tmp_path)
    check_batches(report)
    strings = run(f"grpc://{tritonserver.grpc_address}", "--model", "identity_bytes", "--shape", "INPUT0=1,4", *SHORT)
    assert_all_answered(strings)


def check_batches(report: dict) -> None:
    model = report["models"][0]
    sent = sum(second["offered"] for second in report["seconds"])
    # Triton counts a request shortly after its answer. The count may include one before the run and miss the last one.
    counted = sum(size["rows"] * size["batches"] for size in model["batches"])
    assert abs(counted - sent) <= 1 and abs(model["server"]["requests"] - sent) <= 1, (sent, model)
    assert model["server"]["compute_ms"] > 0


def test_mlserver_over_http(ml_server: Child, tmp_path: Path) -> None:
    report = check(ml_server.base_url, tmp_path, "--tensors", "json")
    assert report["target"]["server"].startswith("mlserver ")
    assert report["models"][0]["batches"] == [] and report["models"][0]["server"] is None, "MLServer has no such statistics"


def test_a_server_without_binary_tensors_is_reported_with_the_option_for_json(ml_server: Child) -> None:
    outcome = load("--url", ml_server.base_url, "--model", "simple", *SHORT)
    assert outcome.code == FAILED and "http_422" in outcome.said, outcome.said
    assert "--tensors json" in outcome.said, outcome.said


def test_mlserver_over_grpc(ml_server: Child, tmp_path: Path) -> None:
    check(f"grpc://{ml_server.grpc_address}", tmp_path)
