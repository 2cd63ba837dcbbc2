"""Requests that a picker put into one batch run as one batch, and never wait long for those that do not come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from fixtures.client import Client
from fixtures.synthetic import echo
from fixtures.tessera import Tessera

ROW = [1.0, 2.0, 3.0, 4.0]
SECONDS = 20.0
# The longest that is allowed, so that a busy machine sends all requests of a batch in time.
MARKS = """
[fleet]
batch_marks = true
batch_wait = "50ms"
[models.m]
batching = { policy = "triton" }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    echo(alpha_us=1_000, max_batch=32).place(tmp_path, "m")
    return tmp_path


@pytest.fixture
def server(repository: Path) -> Iterator[Tessera]:
    with Tessera(repository, MARKS) as server:
        yield server


def batch_rows(server: Tessera, marks: list[str], rows: int = 1) -> list[int]:
    """Send a request with each mark, all at once on connections of their own. Rows of the batch that each ran in."""
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [rows, 4], "data": ROW * rows}]})
    connections = [Client(server).connection for _ in marks]
    for connection in connections:
        connection.connect()
    for connection, mark in zip(connections, marks, strict=True):
        connection.request("POST", "/v2/models/m/infer", body, {"x-tessera-batch": mark})
    found = []
    for connection in connections:
        answer = connection.getresponse()
        text = json.loads(answer.read())
        assert answer.status == 200 and text["outputs"][0]["data"] == ROW * rows, text
        found.append(int(answer.headers["x-tessera-batch-rows"]))
    return found


def batches(server: Tessera) -> dict[str, float]:
    """How marked batches went on."""
    return {word: server.metric("tessera_marked_batches_total", result=word) for word in ("complete", "incomplete")}


def test_eight_clients_with_one_mark_run_as_one_batch(server: Tessera) -> None:
    assert batch_rows(server, ["18446744073709551615/8"] * 8) == [8] * 8
    assert batches(server) == {"complete": 1, "incomplete": 0}
    assert server.metric("tessera_batch_rows_count", model="m") == 1
    assert batch_rows(server, ["1/6"] * 3, rows=2) == [6] * 3, "rows count, not requests"
    assert batches(server) == {"complete": 2, "incomplete": 0}


def test_the_rest_runs_if_one_does_not_come(server: Tessera) -> None:
    assert batch_rows(server, ["7/8"] * 7) == [7] * 7
    assert batches(server) == {"complete": 0, "incomplete": 1}


def test_batches_over_grpc(server: Tessera) -> None:
    tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([ROW], dtype=np.float32))
    ended: SimpleQueue = SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        client.infer("m", [tensor], client_timeout=SECONDS)  # opens the connection
        for _ in range(4):
            client.async_infer("m", [tensor], lambda result, error: ended.put((result, error)), headers={"x-tessera-batch": "7/4"}, client_timeout=SECONDS)
        for _ in range(4):
            result, error = ended.get(timeout=SECONDS)
            assert error is None and result.as_numpy("OUTPUT0").tolist() == [ROW], error
    assert batches(server) == {"complete": 1, "incomplete": 0}
    assert server.metric("tessera_batch_rows_count", model="m") == 2


def test_a_wrong_mark_is_counted_and_the_request_does_not_wait(server: Tessera) -> None:
    wrong = ["", "7", "7/0", "7/4097", "x/8", "+7/8", "7/8/9", "18446744073709551616/8"]
    assert len(batch_rows(server, wrong)) == len(wrong)
    assert server.metric("tessera_batch_marks_ignored_total", cause="malformed") == len(wrong)
    assert batches(server) == {"complete": 0, "incomplete": 0}


def test_without_the_setting_the_header_is_ignored(repository: Path) -> None:
    with Tessera(repository) as server:
        for mark in ("7/8", "wrong"):
            assert batch_rows(server, [mark]) == [1]
        assert not any("batch_mark" in series or "marked_batches" in series for series in server.metrics())
