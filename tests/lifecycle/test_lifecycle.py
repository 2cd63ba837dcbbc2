"""What happens to requests while models change, deadlines pass, clients crowd in and the server goes down.

No test waits by the clock: each step waits for something the server says, with a bound.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.client import Client, get  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

SLOW = """
max_batch = 1

[[inputs]]
name = "INPUT0"
datatype = "FP32"
dims = [-1, 4]

[[outputs]]
name = "OUTPUT0"
datatype = "FP32"
dims = [-1, 4]

[time]
alpha_us = {micros}
"""


def plus(constant: float, width: int = 4) -> ModelProto:
    """OUTPUT0 = INPUT0 + constant."""
    shape = ["N", width]
    graph = helper.make_graph(
        [helper.make_node("Add", ["INPUT0", "constant"], ["OUTPUT0"])],
        "plus",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, shape)],
        initializer=[numpy_helper.from_array(np.array([constant], dtype=np.float32), "constant")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    return model


def dense(width: int) -> ModelProto:
    """OUTPUT0 = INPUT0 x weights: 4 width^2 bytes of them, no two rows alike."""
    weights = np.random.default_rng(1).standard_normal((width, width)).astype(np.float32)
    shape = ["N", width]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["INPUT0", "weights"], ["OUTPUT0"])],
        "dense",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, shape)],
        initializer=[numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    return model


def synthetic(repository: Path, name: str, micros: int) -> None:
    """A model that takes that long for one request at a time."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(SLOW.format(micros=micros))


def in_flight(server: Tessera) -> float:
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("tessera_requests_in_flight"))


def until(condition, what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"


class Crowd:
    """Clients that send one request after another until they are told to stop or the server closes."""

    def __init__(self, server: Tessera, count: int, model: str, rows: list[list[float]], **parameters: object) -> None:
        self.answers: list[tuple[int, dict, dict[str, str]]] = []
        self.cut_off = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(Client(server), model, rows, parameters)) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, client: Client, model: str, rows: list[list[float]], parameters: dict[str, object]) -> None:
        while not self._stop.is_set():
            try:
                self.answers.append(client.infer(model, rows, **parameters))
            except (http.client.HTTPException, OSError):
                self.cut_off += 1
                return

    def leave(self) -> Counter:
        self._stop.set()
        for thread in self._threads:
            thread.join(40)
            assert not thread.is_alive(), "a request was never answered"
        return Counter(status for status, _, _ in self.answers)


@pytest.mark.parametrize("engine", ["tract", "ort"])
def test_a_reload_under_load_fails_no_request(tmp_path: Path, engine: str) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    config = f'[repository]\nengine = "{engine}"\n[models.plus]\nslo = "5s"\n'
    with Tessera(tmp_path, config=config) as server:
        server.wait_ready()
        crowd = Crowd(server, 4, "plus", [[0.0, 1.0, 2.0, 3.0]])
        operator = Client(server)
        for turn in range(2, 12):
            models.place(tmp_path, "plus", plus(float(turn)))
            status, body, _ = operator.post("/v2/repository/models/plus/load", {})
            assert status == 200, body
            # From here on, only the new version answers.
            _, body, _ = operator.infer("plus", [[0.0, 0.0, 0.0, 0.0]])
            assert body["outputs"][0]["data"] == [float(turn)] * 4
            before = len(crowd.answers)
            until(lambda: len(crowd.answers) > before + 20, "answers after the reload")
        statuses = crowd.leave()
        assert set(statuses) == {200} and crowd.cut_off == 0, statuses
        seen = {body["outputs"][0]["data"][0] for _, body, _ in crowd.answers}
        assert seen <= {float(turn) for turn in range(1, 12)} and len(seen) > 5
        for _, body, _ in crowd.answers:
            first, *others = body["outputs"][0]["data"]
            assert others == [first + 1, first + 2, first + 3], "an answer mixes two versions"


def test_a_half_copied_version_never_serves(tmp_path: Path) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    whole = dense(64).SerializeToString()
    with Tessera(tmp_path, config="") as server:
        server.wait_ready()
        client = Client(server)
        half = tmp_path / "plus" / "2"
        half.mkdir()
        (half / "model.onnx").write_bytes(whole[: len(whole) // 2])
        status, body, _ = client.post("/v2/repository/models/plus/load", {})
        assert status >= 400 and "plus" in body["error"], body
        status, body, _ = client.infer("plus", [[0.0, 0.0, 0.0, 0.0]])
        assert status == 200 and body["model_version"] == "1"
        index = {row["version"]: row for row in client.post("/v2/repository/index", {})[1]}
        assert index["1"]["state"] == "READY" and index["2"]["state"] == "UNAVAILABLE" and index["2"]["reason"]
        shutil.rmtree(half)
        models.place(tmp_path, "plus", plus(2.0), version=2)
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        status, body, _ = client.infer("plus", [[0.0, 0.0, 0.0, 0.0]])
        assert body["model_version"] == "2" and body["outputs"][0]["data"] == [2.0] * 4


@pytest.mark.parametrize("engine", ["tract", "ort"])
def test_unloading_gives_memory_back(tmp_path: Path, engine: str) -> None:
    width = 1536  # 9 MiB of weights
    models.place(tmp_path, "dense", dense(width))
    models.place(tmp_path, "plus", plus(1.0))
    with Tessera(tmp_path, config=f'[repository]\nengine = "{engine}"\nload = "explicit"\n') as server:
        client = Client(server)
        # The engine itself comes with the first model and stays.
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        assert client.infer("plus", [[0.0, 0.0, 0.0, 0.0]])[0] == 200
        start = server.rss_bytes()
        sizes = []
        for _ in range(100):
            assert client.post("/v2/repository/models/dense/load", {})[0] == 200
            assert client.infer("dense", [[1.0] * width])[0] == 200
            assert client.post("/v2/repository/models/dense/unload", {})[0] == 200
            sizes.append(server.rss_bytes())
            assert client.infer("dense", [[1.0] * width])[0] == 404
        shown = [round(size / 2**20, 1) for size in [start, *sizes[:3], *sizes[-3:]]]
        print(f"{engine}: MiB at the start, after the first and after the last cycles: {shown}")
        assert sizes[-1] - start < 16 * 2**20, shown


def test_deadlines_bound_waiting_and_hopeless_work_is_not_run(tmp_path: Path) -> None:
    synthetic(tmp_path, "slow", 20_000)
    config = '[repository]\nengine = "synthetic"\n[lanes]\ncount = 1\n[models.slow]\nslo = "200ms"\n'
    with Tessera(tmp_path, config=config) as server:
        server.wait_ready()
        crowd = Crowd(server, 24, "slow", [[0.0, 0.0, 0.0, 0.0]])
        until(lambda: sum(status == 200 for status, _, _ in crowd.answers) >= 100, "100 answers at 24 times the load")
        statuses = crowd.leave()
        assert set(statuses) <= {200, 503, 504} and statuses[503] + statuses[504] > 0, statuses
        for status, body, headers in crowd.answers:
            if status != 200:
                assert headers["x-tessera-reason"] in {"deadline_unmeetable", "shed", "expired"}, headers
                assert "deadline" in body["error"]
        (stats,) = get(f"{server.base_url}/v2/models/slow/stats")["model_stats"]
        ran, answered = stats["execution_count"], statuses[200]
        assert ran == answered, "a refused request was run"
        late = sum(int(headers["x-tessera-queue-us"]) > 200_000 for status, _, headers in crowd.answers if status == 200)
        assert late == 0, f"{late} requests were started after their deadline"
        print(f"{answered} answered, {statuses[503]} refused early, {statuses[504]} expired")


def test_sigterm_answers_what_is_in_flight_and_refuses_the_rest(tmp_path: Path) -> None:
    synthetic(tmp_path, "slow", 400_000)
    models.place(tmp_path, "plus", plus(1.0))
    server = Tessera(tmp_path)
    server.wait_ready()
    long_one = Crowd(server, 1, "slow", [[0.0, 0.0, 0.0, 0.0]])
    crowd = Crowd(server, 4, "plus", [[0.0, 0.0, 0.0, 0.0]])
    until(lambda: len(crowd.answers) > 50 and in_flight(server) >= 1, "load")
    # Just answered, the next slow request is then sent at once and runs for 400 ms: it is in flight at the signal.
    answered_before = len(long_one.answers)
    until(lambda: len(long_one.answers) > answered_before, "a slow answer")
    answered_before += 1
    (start,) = get(f"{server.base_url}/v2/models/slow/stats")["model_stats"]
    before = len(crowd.answers)
    until(lambda: len(crowd.answers) > before + 20, "the slow request to be sent")
    assert start["execution_count"] >= answered_before
    server.process.send_signal(signal.SIGTERM)
    sent = time.monotonic()
    until(lambda: not server.is_ready(), "readiness to be gone")
    print(f"not ready {(time.monotonic() - sent) * 1e3:.1f} ms after SIGTERM")
    statuses = crowd.leave()
    assert set(statuses) <= {200, 503}, statuses
    for status, _, headers in crowd.answers:
        assert status == 200 or headers["x-tessera-reason"] == "draining"
    slow = long_one.leave()
    assert len(long_one.answers) > answered_before, "the request in flight was lost"
    assert set(slow) <= {200, 503} and slow[200] > answered_before, slow
    # A second signal would tell it to stop waiting.
    server.process.wait(40)
    assert server.stop() == 0


def test_links_do_not_lead_out_of_the_repository(tmp_path: Path) -> None:
    outside, repository = tmp_path / "outside", tmp_path / "repository"
    models.place(outside, "secret", plus(1.0))
    models.place(repository, "plus", plus(1.0))
    (repository / "linked").symlink_to(outside / "secret")
    (repository / "inner" / "1").mkdir(parents=True)
    (repository / "inner" / "1" / "model.onnx").symlink_to(outside / "secret" / "1" / "model.onnx")
    with Tessera(repository, config="", options=["--load-mode", "explicit"]) as server:
        client = Client(server)
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        for name in ["linked", "inner", "..%2foutside%2fsecret", "secret"]:
            status, body, _ = client.post(f"/v2/repository/models/{name}/load", {})
            assert status >= 400, (name, body)
            assert client.infer(name, [[0.0, 0.0, 0.0, 0.0]])[0] == 404
        assert client.infer("plus", [[0.0, 0.0, 0.0, 0.0]])[0] == 200


def test_a_model_that_an_engine_cannot_run_is_refused_by_name(tmp_path: Path) -> None:
    models.place(tmp_path, "halves", models.identity("BF16", ["N", "M"]))
    with Tessera(tmp_path, config='[models.halves]\nengine = "tract"\n') as server:
        (row,) = Client(server).post("/v2/repository/index", {})[1]
        assert row["state"] == "UNAVAILABLE"
        for word in ("halves", "tract"):
            assert word in row["reason"], row
        print(row["reason"])


def test_a_model_that_fails_keeps_the_server_from_being_ready_and_the_others_serving(tmp_path: Path) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"not a model")
    with Tessera(tmp_path, config="") as server:
        client = Client(server)
        assert not server.is_ready()
        assert client.infer("plus", [[0.0, 0.0, 0.0, 0.0]])[0] == 200
        status, body, _ = client.infer("broken", [[0.0, 0.0, 0.0, 0.0]])
        assert status == 404 and "broken" in body["error"]
        assert client.post("/v2/repository/models/broken/unload", {})[0] == 200
        assert server.is_ready()
