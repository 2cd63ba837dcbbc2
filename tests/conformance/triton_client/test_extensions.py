"""Extensions as tritonclient calls them: classification, statistics, configuration, repository, shared memory."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
import tritonclient.utils.shared_memory as shm
from fixtures.models import BUNDLED
from tritonclient.utils import InferenceServerException


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param), thttp if request.param == "http" else tgrpc


def seven(module, rows: int = 1):
    sample = json.loads((BUNDLED / "digits" / "sample.json").read_text())["inputs"][0]
    array = np.tile(np.array(sample["data"], np.float32), (rows, 1))
    tensor = module.InferInput("image", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def test_classification(client) -> None:
    connection, module = client
    outputs = [module.InferRequestedOutput("probabilities", class_count=3)]
    answer = connection.infer("digits", [seven(module, 2)], outputs=outputs)
    found = answer.as_numpy("probabilities")
    assert found.shape == (2, 3)
    texts = [item.decode() if isinstance(item, bytes) else item for item in found.ravel()]
    value, index, label = texts[0].split(":")
    assert (index, label) == ("7", "seven")
    assert value == f"{float(value):.6f}" and float(value) > 0.9
    values = [float(text.split(":")[0]) for text in texts[:3]]
    assert values == sorted(values, reverse=True)


def test_classification_without_labels(client) -> None:
    connection, module = client
    array = np.array([[4, 9, 1, 7]], np.int32)
    tensor = module.InferInput("INPUT0", array.shape, "INT32")
    tensor.set_data_from_numpy(array)
    answer = connection.infer(
        "identity_int32", [tensor], outputs=[module.InferRequestedOutput("OUTPUT0", class_count=2)]
    )
    texts = [item.decode() if isinstance(item, bytes) else item for item in answer.as_numpy("OUTPUT0").ravel()]
    assert texts == ["9:1", "7:3"]


def counts(statistics: dict) -> tuple[int, int, int]:
    entry = statistics["model_stats"][0]
    stats = entry["inference_stats"]
    return (
        int(entry.get("inference_count", 0)),
        int(stats["success"].get("count", 0)),
        int(stats["fail"].get("count", 0)),
    )


def test_statistics(http, grpc) -> None:
    before = counts(http.get_inference_statistics("digits"))
    for module, connection in ((thttp, http), (tgrpc, grpc)):
        connection.infer("digits", [seven(module, 3)])
    after = counts(http.get_inference_statistics("digits"))
    assert (after[0] - before[0], after[1] - before[1], after[2] - before[2]) == (6, 2, 0)
    over_grpc = grpc.get_inference_statistics("digits", as_json=True)
    assert counts(over_grpc) == after
    entry = http.get_inference_statistics("digits", "1")["model_stats"][0]
    assert entry["version"] == "1" and entry["last_inference"] > 1_600_000_000_000
    for part in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        assert set(entry["inference_stats"][part]) == {"count", "ns"}
    assert (
        sum(row["batch_size"] * row["compute_infer"]["count"] for row in entry["batch_stats"])
        == entry["inference_count"]
    )
    names = {row["name"] for row in http.get_inference_statistics()["model_stats"]}
    assert {"digits", "simple"} <= names


def test_configuration(http, grpc) -> None:
    over_http = http.get_model_config("digits")
    over_grpc = grpc.get_model_config("digits").config
    assert over_http["name"] == over_grpc.name == "digits"
    assert over_http["max_batch_size"] == over_grpc.max_batch_size >= 1
    image = over_http["input"][0]
    assert (image["name"], image["data_type"], image["dims"]) == ("image", "TYPE_FP32", [64])
    assert (over_grpc.input[0].name, list(over_grpc.input[0].dims)) == ("image", [64])
    assert {output["name"] for output in over_http["output"]} == {"probabilities", "digit"}
    assert http.get_model_config("fixed")["max_batch_size"] == 0
    assert http.get_model_config("fixed")["input"][0]["dims"] == [2, 3]
    with pytest.raises(InferenceServerException):
        http.get_model_config("absent")


def state_of(connection, name: str) -> str:
    rows = connection.get_model_repository_index()
    rows = rows if isinstance(rows, list) else [{"name": row.name, "state": row.state} for row in rows.models]
    return next(row["state"] for row in rows if row["name"] == name)


def wait_for_state(connection, name: str, state: str) -> None:
    """Triton unloads after it has answered; a bounded number of looks, each a round trip."""
    for _ in range(20_000):
        if state_of(connection, name) == state:
            return
    raise AssertionError(f"{name} is {state_of(connection, name)}, not {state}")


def test_unload_and_load(client) -> None:
    connection, module = client
    name = "identity_fp64"
    array = np.ones((1, 2), np.float64)
    tensor = module.InferInput("INPUT0", array.shape, "FP64")
    tensor.set_data_from_numpy(array)
    assert state_of(connection, name) == "READY"
    connection.unload_model(name)
    wait_for_state(connection, name, "UNAVAILABLE")
    assert not connection.is_model_ready(name)
    with pytest.raises(InferenceServerException) as caught:
        connection.infer(name, [tensor])
    assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")
    assert connection.is_server_ready()
    connection.load_model(name)
    assert state_of(connection, name) == "READY" and connection.is_model_ready(name)
    assert (connection.infer(name, [tensor]).as_numpy("OUTPUT0") == array).all()
    connection.load_model(name)
    assert connection.is_model_ready(name)


def test_loading_what_is_not_there(client) -> None:
    connection, _ = client
    for name in ("absent", "..", "a/b", ".hidden"):
        with pytest.raises(InferenceServerException):
            connection.load_model(name)
    assert connection.is_server_ready()


def test_system_shared_memory(client) -> None:
    connection, module = client
    key = f"/tessera-{uuid.uuid4().hex}"
    sent = np.arange(32, dtype=np.float32).reshape(2, 16)
    region = shm.create_shared_memory_region("conformance", key, 2 * sent.nbytes)
    try:
        shm.set_shared_memory_region(region, [sent])
        connection.register_system_shared_memory("conformance", key, 2 * sent.nbytes)
        status = connection.get_system_shared_memory_status("conformance")
        row = status[0] if isinstance(status, list) else status.regions["conformance"]
        assert (row["key"] if isinstance(row, dict) else row.key) == key
        tensor = module.InferInput("INPUT0", sent.shape, "FP32")
        tensor.set_shared_memory("conformance", sent.nbytes)
        output = module.InferRequestedOutput("OUTPUT0")
        output.set_shared_memory("conformance", sent.nbytes, offset=sent.nbytes)
        answer = connection.infer("identity_fp32", [tensor], outputs=[output])
        described = answer.get_output("OUTPUT0")
        assert list(described["shape"] if isinstance(described, dict) else described.shape) == [2, 16]
        found = shm.get_contents_as_numpy(region, np.float32, sent.shape, offset=sent.nbytes)
        assert (found == sent).all()
        beyond = module.InferInput("INPUT0", sent.shape, "FP32")
        beyond.set_shared_memory("conformance", sent.nbytes, offset=2 * sent.nbytes)
        with pytest.raises(InferenceServerException) as caught:
            connection.infer("identity_fp32", [beyond])
        assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    finally:
        connection.unregister_system_shared_memory("conformance")
        shm.destroy_shared_memory_region(region)
    with pytest.raises(InferenceServerException):
        connection.infer("identity_fp32", [tensor])


def test_unregistered_regions(client) -> None:
    connection, module = client
    tensor = module.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_shared_memory("nowhere", 16)
    with pytest.raises(InferenceServerException) as caught:
        connection.infer("identity_fp32", [tensor])
    assert "nowhere" in caught.value.message()
    with pytest.raises(InferenceServerException):
        connection.register_system_shared_memory("absent", "/tessera-no-such-key", 64)
    connection.unregister_system_shared_memory()
    status = connection.get_system_shared_memory_status()
    assert len(status if isinstance(status, list) else status.regions) == 0
