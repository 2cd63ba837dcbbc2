"""Loading with a configuration and files from the client: what both servers answer and serve afterwards."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from fixtures import models
from triton.conftest import Pair

CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
WIDE = models.identity("FP32", ["N", 3]).SerializeToString()
PLUS = models.plus(5.0).SerializeToString()


@pytest.fixture(params=["http", "grpc"])
def connections(servers: Pair, request: pytest.FixtureRequest):
    """The module and both connections."""
    module = CLIENTS[request.param]
    addresses = [
        (server.http_address if request.param == "http" else server.grpc_address)
        for server in (servers.tessera, servers.triton)
    ]
    ours, theirs = (module.InferenceServerClient(address) for address in addresses)
    with ours, theirs:
        yield module, ours, theirs


def batch_of(connection, model: str) -> int:
    config = connection.get_model_config(model)
    return config["max_batch_size"] if isinstance(config, dict) else config.config.max_batch_size


def versions(connection, model: str) -> list[str]:
    metadata = connection.get_model_metadata(model)
    return list(metadata["versions"] if isinstance(metadata, dict) else metadata.versions)


def infer(module, connection, model: str, width: int) -> np.ndarray:
    tensor = module.InferInput("INPUT0", [1, width], "FP32")
    tensor.set_data_from_numpy(np.ones((1, width), np.float32))
    return connection.infer(model, [tensor]).as_numpy("OUTPUT0")


def test_a_configuration_holds_until_the_next_load(connections) -> None:
    module, ours, theirs = connections
    # Triton keeps it at the next load while the repository is unchanged.
    for connection, next_load in ((ours, 8), (theirs, 2)):
        connection.load_model("plain", config=json.dumps({"backend": "onnxruntime", "max_batch_size": 2}))
        assert batch_of(connection, "plain") == 2
        assert infer(module, connection, "plain", 4).shape == (1, 4)
        connection.load_model("plain")
        assert batch_of(connection, "plain") == next_load
        connection.unload_model("plain")
        connection.load_model("plain")
        assert batch_of(connection, "plain") == 8


def test_files_replace_those_of_the_repository(connections) -> None:
    module, *both = connections
    for connection in both:
        config = json.dumps({"backend": "onnxruntime", "max_batch_size": 4})
        connection.load_model("plain", config=config, files={"file:5/model.onnx": PLUS})
        assert versions(connection, "plain") == ["5"]
        assert (infer(module, connection, "plain", 4) == 6).all()
        connection.load_model("plain")
        assert versions(connection, "plain") == ["1"]
        assert (infer(module, connection, "plain", 4) == 1).all()


def test_a_model_may_come_from_the_client_alone(connections) -> None:
    module, *both = connections
    for connection in both:
        config = json.dumps({"backend": "onnxruntime", "max_batch_size": 4})
        connection.load_model("fresh", config=config, files={"file:1/model.onnx": WIDE})
        assert infer(module, connection, "fresh", 3).shape == (1, 3)
        connection.unload_model("fresh", unload_dependents=True)
        assert not connection.is_model_ready("fresh")


@pytest.mark.parametrize(
    ("config", "files", "words"),
    [
        ("{bad", {}, "parameters.config"),
        ('{"nope": 1}', {}, "nope"),
        ('{"max_batch_size": -1}', {}, "max_batch_size"),
        (None, {"file:1/model.onnx": PLUS}, "config"),
        ("{}", {"file:../model.onnx": PLUS}, "1/model.onnx"),
        ('{"backend": "onnxruntime"}', {"file:1/model.onnx": b"no model"}, "plain"),
    ],
)
def test_a_wrong_load_changes_nothing(connections, config: str | None, files: dict, words: str) -> None:
    module, ours, _ = connections
    with pytest.raises(InferenceServerException) as raised:
        ours.load_model("plain", config=config, files=files or None)
    assert words in raised.value.message()
    assert (infer(module, ours, "plain", 4) == 1).all()
    assert batch_of(ours, "plain") == 8
