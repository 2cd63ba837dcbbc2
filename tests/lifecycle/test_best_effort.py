"""Requests of best effort run on idle lanes, are preempted, and are answered all the same."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures import models  # noqa: E402
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

ROW = [[1.0, 2.0, 3.0, 4.0]]
CHAIN = 2_000
CONFIG = """
    [repository]
    engine = "ort"
    [lanes]
    count = 1
    [models.job]
    max_batch = 8
    [models.online]
    slo = "2s"
"""
SCHED_IDLE = 5


def policies(pid: int) -> dict[str, set[int]]:
    """Scheduling policies of the threads of a process, by name."""
    found: dict[str, set[int]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # It may have ended.
            name, fields = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
            found.setdefault(name, set()).add(int(fields.split()[41 - 3]))
    return found


def test_preempted_batches_run_again_and_their_results_are_right(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    models.place(repository, "job", models.matmul_chain(512, CHAIN))
    echo(alpha_us=2_000).place(repository, "online")
    inputs = np.random.default_rng(7).standard_normal((8, 512)).astype(np.float32)
    rotation = numpy_helper.to_array(models.matmul_chain(512, 1).graph.initializer[0]).astype(np.float64)
    expected = inputs.astype(np.float64) @ np.linalg.matrix_power(rotation, CHAIN)
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        stop = threading.Event()

        def job(row: int) -> int:
            client, tensor = Client(server), {"name": "INPUT0", "datatype": "FP32", "shape": [1, 512]}
            answered = 0
            while not stop.is_set():
                body = {
                    "parameters": {"class": "best_effort"},
                    "inputs": [{**tensor, "data": inputs[row].tolist()}],
                }
                status, answer, _ = client.post("/v2/models/job/infer", body)
                assert status == 200, answer
                np.testing.assert_allclose(answer["outputs"][0]["data"], expected[row], rtol=2e-2, atol=2e-2)
                answered += 1
            return answered

        def preempted() -> float:
            return server.metric("tessera_preempted_batches_total")

        online = Client(server)

        def ask() -> bool:
            status, answer, _ = online.infer("online", ROW)
            assert (status, answer["outputs"][0]["data"]) == (200, ROW[0])
            return preempted() >= 5

        with ThreadPoolExecutor(8) as jobs:
            rows = [jobs.submit(job, row) for row in range(8)]
            try:
                until(ask, lambda: f"batches are preempted:\n{server.log()[-2000:]}", 60)
            finally:
                stop.set()
            assert all(row.result(60) >= 1 for row in rows)
        assert server.metric("tessera_preempted_us_total") > 0
        told = get(f"{server.base_url}/v2/explain?model=job")
        assert "best_effort" in str(told), told


def test_a_request_may_be_of_best_effort_and_other_classes_are_refused(tmp_path: Path) -> None:
    echo(alpha_us=1_000).place(tmp_path / "repository", "online")
    with Tessera(tmp_path / "repository", '[models.online]\nslo = "1us"\n') as server:
        server.wait_ready()
        client = Client(server)
        # It has no objective, which no answer would meet here.
        status, answer, _ = client.infer("online", ROW, **{"class": "best_effort"})
        assert status == 200, answer
        status, answer, _ = client.infer("online", ROW, **{"class": "besteffort"})
        assert (status, answer["error"]) == (400, 'parameters.class: expected "best_effort", or none'), answer


def test_a_model_of_best_effort_runs_at_idle_priority(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    models.place(repository, "job", models.matmul_chain(512, CHAIN))
    models.place(repository, "online", models.matmul_chain(64, 10))
    shutil.copytree(ROOT / "tests" / "python_models" / "identity", repository / "identity")
    config = """
        [repository]
        engine = "ort"
        [lanes]
        count = 1
        [models.job]
        class = "best_effort"
        max_batch = 8
        [models.identity]
        class = "best_effort"
        lanes = [0]
        [models.online]
        slo = "2s"
    """
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # It has numpy.
    with Tessera(repository, config, environment=path) as server:
        server.wait_ready(60)
        lanes = get(f"{server.base_url}/v2/lanes")
        assert [lane.get("idle_priority", False) for lane in lanes] == [False, True], lanes
        # Each session has a helper on the other core. A thread has its name and its priority once it runs.
        wanted = {"lane-0": {0}, "lane-1": {SCHED_IDLE}, "ort-pool": {0, SCHED_IDLE}}
        found = lambda: {name: policies(server.pid).get(name) for name in wanted}  # noqa: E731
        until(lambda: found() == wanted, lambda: f"threads have the priority of their lane: {found()}", 10)
        python = [child for child in server.children() if "python" in Path(f"/proc/{child}/comm").read_text()]
        assert [policies(child) for child in python] and all(
            set.union(*policies(child).values()) == {SCHED_IDLE} for child in python
        ), [policies(child) for child in python]

        client, row = Client(server), np.random.default_rng(7).standard_normal(512).astype(np.float32)
        rotation = numpy_helper.to_array(models.matmul_chain(512, 1).graph.initializer[0]).astype(np.float64)
        expected = row.astype(np.float64) @ np.linalg.matrix_power(rotation, CHAIN)
        body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 512], "data": row.tolist()}]}
        small = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}]}
        with ThreadPoolExecutor(1) as jobs:
            job = jobs.submit(lambda: [Client(server).post("/v2/models/job/infer", body) for _ in range(5)])
            online = [client.post("/v2/models/online/infer", small)[0] for _ in range(200)]
            answers = job.result(60)
        assert set(online) == {200}
        for status, answer, _ in answers:
            assert status == 200, answer
            np.testing.assert_allclose(answer["outputs"][0]["data"], expected, rtol=2e-2, atol=2e-2)
        assert server.metric("tessera_preempted_batches_total") == 0


def test_a_model_of_best_effort_has_no_objective(tmp_path: Path) -> None:
    echo(alpha_us=1_000).place(tmp_path / "repository", "m")
    config = '[models.m]\nslo = "1s"\nclass = "best_effort"\n'
    with Tessera(tmp_path / "repository", config) as server:
        until(lambda: "has no objective" in server.log(), lambda: server.log()[-2000:], 30)


