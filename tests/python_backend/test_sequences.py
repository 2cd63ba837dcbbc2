"""Sequences of Python models: both servers tell the model the same, and it keeps its state itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from fixtures.tessera import Tessera

from python_backend.conftest import MODELS, environment


def step(client, module, sequence: int, value: float, start: bool = False, end: bool = False) -> tuple[float, dict]:
    tensor = module.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[value]], np.float32))
    answer = client.infer(
        "accumulator", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end
    )
    return float(answer.as_numpy("SUM")[0, 0]), json.loads(answer.as_numpy("TOLD")[0, 0])


@pytest.mark.parametrize("module", [httpclient, grpcclient], ids=["http", "grpc"])
def test_the_model_is_told_what_triton_tells_it(tessera, triton, module):
    answers = []
    for server in (tessera, triton):
        address = server.http_address if module is httpclient else server.grpc_address
        with module.InferenceServerClient(address) as client:
            answers.append([
                step(client, module, sequence, 10.0**number, start=number == 0, end=number == 3)
                for number in range(4)
                for sequence in (7, 8)
            ])  # fmt: skip
    ours, theirs = answers
    assert ours == theirs
    assert [total for total, _ in ours] == [1, 1, 11, 11, 111, 111, 1111, 1111]


def test_a_model_on_several_lanes_is_refused_with_the_remedy(tmp_path: Path):
    shutil.copytree(MODELS / "accumulator", tmp_path / "accumulator")
    config = tmp_path / "accumulator" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", "count: 2"))
    remedy = "it has 2 lanes, expected one: set `instance_group { count: 1 }`"
    command = [os.environ["TESSERA_BIN"], "check", "--repository", str(tmp_path), "--lanes", "2"]
    checked = subprocess.run(
        command, env={**os.environ, **environment()}, capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 1 and remedy in checked.stdout + checked.stderr
    with Tessera(tmp_path, "", ["--lanes", "2"], environment=environment()) as server:
        (model,) = server.announced["models"]
        assert remedy in model["reason"]
