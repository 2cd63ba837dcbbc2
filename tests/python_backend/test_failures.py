"""Models that fail: the server and its other models go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient
from fixtures.tessera import Tessera
from fixtures.wait import until
from python_backend.conftest import environment
from tritonclient.utils import InferenceServerException


def do(server: Tessera, word: str) -> int:
    client = httpclient.InferenceServerClient(server.http_address, network_timeout=30.0)
    tensor = httpclient.InferInput("DO", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([word.encode()], np.object_))
    try:
        return int(client.infer("fragile", [tensor]).as_numpy("PID")[0])
    finally:
        client.close()


def answers_again(server: Tessera) -> int:
    found: list[int] = []

    def answered() -> bool:
        try:
            found.append(do(server, "tell"))
        except InferenceServerException as error:
            assert "starting again" in error.message(), error.message()
        return bool(found)

    until(answered, "the model answers again", 30)
    return found[0]


@pytest.mark.parametrize(
    ("word", "reason"),
    [("exit", "exit status: 7"), ("abort", "signal: 6"), ("hang", "execute took more than 2s")],
)
def test_a_process_that_fails_is_replaced(tessera: Tessera, word: str, reason: str):
    before = answers_again(tessera)
    with pytest.raises(InferenceServerException) as failed:
        do(tessera, word)
    assert reason in failed.value.message()
    assert failed.value.status() == "500"
    assert answers_again(tessera) != before
    assert tessera.is_ready()


def model(folder: Path, text: str, config: str = "") -> Path:
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "model.py").write_text(text)
    tensors = "".join(f'{way} {{ name: "{way}" data_type: TYPE_FP32 dims: [ 1 ] }}\n' for way in ("input", "output"))
    (folder / "broken" / "config.pbtxt").write_text(f'backend: "python"\n{config or tensors}')
    return folder


@pytest.mark.parametrize(
    ("text", "config", "reason"),
    [
        (
            "class TritonPythonModel:\n  def execute(self, requests): ...\n  def initialize(self, args): raise ValueError('no weights')",
            "",
            "ValueError: no weights",
        ),
        ("import nothing_such", "", "ModuleNotFoundError: No module named 'nothing_such'"),
        ("class Other: pass", "", "expected a class named TritonPythonModel"),
        ("class TritonPythonModel: pass", "", "expected a method named execute"),
        ("def broken(:", "", "SyntaxError"),
        ("import os\nos._exit(3)", "", "the Python process ended: exit status: 3"),
        ("class TritonPythonModel: pass", "max_batch_size: 1", "expected at least one in config.pbtxt or from auto_complete_config"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_load_says_why(tmp_path: Path, text: str, config: str, reason: str):
    with Tessera(model(tmp_path, text, config), environment=environment()) as server:
        index = httpclient.InferenceServerClient(server.http_address).get_model_repository_index()
        until(lambda: server.logged("cannot load"), server.log, 30)
        assert reason in server.logged("cannot load")[0]["reason"], index
        assert not server.is_ready()


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path):
    config = '[models.broken]\npython = "/nowhere/python3"\n'
    with Tessera(model(tmp_path, "class TritonPythonModel: pass"), config, environment=environment()) as server:
        until(lambda: server.logged("cannot load"), server.log, 30)
        assert "cannot start `/nowhere/python3`" in server.logged("cannot load")[0]["reason"]


def test_worker_processes_run_python_models_too(repository: Path):
    with Tessera(repository, "[devices]\nisolation = \"process\"\n[models.counter]\nsample_runs = false\n", environment=environment()) as server:
        server.wait_ready(120)
        assert do(server, "tell") > 0


def test_accelerators_of_a_python_model_are_logged_by_name(tmp_path: Path):
    """As in Triton, the model finds them in its configuration, and they have no other effect."""
    text = """import json, numpy as np, triton_python_backend_utils as pb_utils
class TritonPythonModel:
  def initialize(self, args):
    lists = json.loads(args["model_config"])["optimization"]["execution_accelerators"]
    self.name = lists["gpu_execution_accelerator"][0]["name"]
  def execute(self, requests):
    output = pb_utils.Tensor("output", np.array([self.name.encode()], np.object_))
    return [pb_utils.InferenceResponse([output]) for _ in requests]
"""
    config = """input { name: "input" data_type: TYPE_STRING dims: [ 1 ] } output { name: "output" data_type: TYPE_STRING dims: [ 1 ] }
optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" } ] } }
instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] } ]
"""
    with Tessera(model(tmp_path, text, config), environment=environment()) as server:
        server.wait_ready(60)
        tensor = httpclient.InferInput("input", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([b"a"], np.object_))
        with httpclient.InferenceServerClient(server.http_address) as client:
            assert client.infer("broken", [tensor]).as_numpy("output").tolist() == [b"tensorrt"]
        messages = [event["message"] for event in server.logged("")]
    for field in ("gpu_execution_accelerator.name: `tensorrt`", "instance_group.gpus"):
        assert any(f"{field}: has no effect here: " in message for message in messages), messages
