"""Requests of best effort run on idle lanes, are preempted, and are answered all the same."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
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
    class = "best_effort"
    max_batch = 8
    [models.online]
    slo = "2s"
"""


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
                body = {"inputs": [{**tensor, "data": inputs[row].tolist()}]}
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


def test_a_model_of_best_effort_has_no_objective(tmp_path: Path) -> None:
    echo(alpha_us=1_000).place(tmp_path / "repository", "m")
    config = '[models.m]\nslo = "1s"\nclass = "best_effort"\n'
    with Tessera(tmp_path / "repository", config) as server:
        until(lambda: "has no objective" in server.log(), lambda: server.log()[-2000:], 30)


