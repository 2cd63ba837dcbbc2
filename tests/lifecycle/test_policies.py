"""Every batching policy, named in `tessera.toml`, serves a real model on the live server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
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
from fixtures.tessera import Tessera  # noqa: E402

DIGITS = ROOT / "models" / "bundled" / "digits"
ROUNDS = 15
# They wait for company up to the last moment at which a deadline can be met. If the machine stalls then, the request is
# lost, so how many they answer depends on the machine. The others start at once, with 400 ms to spare.
LAST_MOMENT = {"rafiki", "nexus", "clockwork", "symphony"}
ANSWERED_LEAST_AT_LAST_MOMENT = 0.5


def names(tmp_path: Path) -> list[str]:
    """The policies of the binary, from its error about an unknown one."""
    repository = tmp_path / "wrong"
    shutil.copytree(DIGITS, repository / "digits")
    (repository / "tessera.toml").write_text('[models.digits]\nbatching = { policy = "magic" }\n')
    command = [os.environ["TESSERA_BIN"], "check", "--repository", repository, "--config", repository / "tessera.toml"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = re.search(r"unknown policy `magic`, expected one of ([a-z, ]+)", answer.stdout + answer.stderr)
    assert answer.returncode != 0 and found, answer
    return found.group(1).split(", ")


def test_every_policy_serves_a_real_model_under_concurrency(tmp_path: Path) -> None:
    policies = names(tmp_path)
    assert len(policies) >= 9 and LAST_MOMENT < set(policies)
    repository = tmp_path / "repository"
    for policy in policies:
        shutil.copytree(DIGITS, repository / policy)
        settings = repository / policy / "config.pbtxt"
        settings.write_text(settings.read_text().replace('"digits"', f'"{policy}"', 1))
    config = "".join(
        f'[models.{policy}]\nslo = "400ms"\nbatching = {{ policy = "{policy}" }}\n' for policy in policies
    )
    sample = json.loads((DIGITS / "sample.json").read_text())
    with Tessera(repository, config) as server:
        server.wait_ready()
        answers: dict[str, list[object]] = {policy: [] for policy in policies}

        def ask(policy: str) -> None:
            client = Client(server)
            for _ in range(ROUNDS):
                status, answer, _ = client.post(f"/v2/models/{policy}/infer", sample)
                digit = next((o["data"] for o in answer.get("outputs", []) if o["name"] == "digit"), answer)
                answers[policy].append((status, digit))

        crowd = [threading.Thread(target=ask, args=(policy,)) for policy in policies for _ in range(3)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join(120)
        for policy, got in answers.items():
            assert len(got) == 3 * ROUNDS, policy
            answered = [digit for status, digit in got if status == 200]
            assert all(digit == [7] for digit in answered), (policy, answered)
            assert {status for status, _ in got} <= {200, 503, 504}, (policy, got)
            least = ANSWERED_LEAST_AT_LAST_MOMENT if policy in LAST_MOMENT else 1.0
            assert len(answered) >= least * len(got), (policy, got)
        for policy in policies:
            model = get(f"{server.base_url}/v2/models/{policy}/config")
            assert model["parameters"]["tessera.policy"]["string_value"] == policy
            (stats,) = get(f"{server.base_url}/v2/models/{policy}/stats")["model_stats"]
            assert stats["inference_count"] == sum(status == 200 for status, _ in answers[policy]), stats


def test_shepherd_preempts_a_running_batch_and_answers_its_requests_later(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    models.place(repository, "slow", models.matmul_chain(512, 400))
    config = (
        '[repository]\nengine = "ort"\n[lanes]\ncount = 1\n'
        '[models.slow]\nmax_batch = 32\nbatching = { policy = "shepherd" }\n'
    )
    inputs = np.random.default_rng(5).standard_normal((32, 512)).astype(np.float32)
    rotation = numpy_helper.to_array(models.matmul_chain(512, 1).graph.initializer[0]).astype(np.float64)
    expected = inputs.astype(np.float64) @ np.linalg.matrix_power(rotation, 400)
    with Tessera(repository, config) as server:
        server.wait_ready()

        def ask(row: int) -> None:
            tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 512], "data": inputs[row].tolist()}
            status, answer, _ = Client(server).post("/v2/models/slow/infer", {"inputs": [tensor]})
            assert status == 200, answer
            np.testing.assert_allclose(answer["outputs"][0]["data"], expected[row], rtol=1e-2, atol=1e-2)

        def preempted() -> float:
            return server.metric("tessera_preempted_batches_total")

        # The first requests run while the others arrive.
        for _ in range(50):
            with ThreadPoolExecutor(32) as clients:
                list(clients.map(ask, range(32)))
            if preempted():
                break
        assert preempted() >= 1, server.log()[-3000:]
        assert server.metric("tessera_preempted_us_total") > 0
