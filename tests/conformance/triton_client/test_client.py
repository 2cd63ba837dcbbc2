"""tritonclient as an application uses it: each of its four clients, requested outputs, versions, parameters, errors."""

from __future__ import annotations

import asyncio
import queue

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.grpc.aio as tgrpc_aio
import tritonclient.http as thttp
import tritonclient.http.aio as thttp_aio
from tritonclient.utils import InferenceServerException

FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)


def inputs(module, first: np.ndarray = FIRST, second: np.ndarray = ONES) -> list:
    tensors = []
    for name, array in (("INPUT0", first), ("INPUT1", second)):
        tensor = module.InferInput(name, array.shape, "INT32")
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest):
    """Both synchronous clients, with the module that their tensors come from."""
    return request.getfixturevalue(request.param), thttp if request.param == "http" else tgrpc


def test_health(client) -> None:
    connection, _ = client
    assert connection.is_server_live() and connection.is_server_ready()
    assert connection.is_model_ready("simple") and connection.is_model_ready("simple", "1")
    assert not connection.is_model_ready("absent")
    assert not connection.is_model_ready("simple", "9")


def test_metadata(http, grpc) -> None:
    over_http = http.get_model_metadata("digits")
    over_grpc = grpc.get_model_metadata("digits", as_json=True)
    assert over_http["name"] == over_grpc["name"] == "digits"
    assert over_http["versions"] == over_grpc["versions"] == ["1"]
    assert over_http["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}]
    probabilities = next(output for output in over_http["outputs"] if output["name"] == "probabilities")
    assert (probabilities["datatype"], probabilities["shape"]) == ("FP32", [-1, 10])
    assert over_grpc["inputs"] == [{"name": "image", "datatype": "FP32", "shape": ["-1", "64"]}]
    assert [output["name"] for output in over_grpc["outputs"]] == [output["name"] for output in over_http["outputs"]]
    server_http, server_grpc = http.get_server_metadata(), grpc.get_server_metadata(as_json=True)
    assert server_http["name"] == server_grpc["name"] and server_http["version"] == server_grpc["version"]
    assert {"binary_tensor_data", "classification", "statistics", "model_repository", "model_configuration"} <= set(
        server_http["extensions"]
    )


def test_outputs_on_request(client) -> None:
    connection, module = client
    only = connection.infer("simple", inputs(module), outputs=[module.InferRequestedOutput("OUTPUT1")])
    assert only.as_numpy("OUTPUT0") is None
    assert (only.as_numpy("OUTPUT1") == FIRST - ONES).all()
    every = connection.infer("simple", inputs(module))
    assert (every.as_numpy("OUTPUT0") == FIRST + ONES).all()
    assert (every.as_numpy("OUTPUT1") == FIRST - ONES).all()


def test_partly_binary_outputs(http) -> None:
    wanted = [
        thttp.InferRequestedOutput("OUTPUT0", binary_data=True),
        thttp.InferRequestedOutput("OUTPUT1", binary_data=False),
    ]
    answer = http.infer("simple", inputs(thttp), outputs=wanted)
    assert "data" not in answer.get_output("OUTPUT0") and "data" in answer.get_output("OUTPUT1")
    assert (answer.as_numpy("OUTPUT0") == FIRST + ONES).all()
    assert (answer.as_numpy("OUTPUT1") == FIRST - ONES).all()


def test_batches(client) -> None:
    connection, module = client
    generator = np.random.default_rng(1)
    for rows in (1, 2, 7, 64):
        first, second = (generator.integers(-1000, 1000, (rows, 16)).astype(np.int32) for _ in range(2))
        answer = connection.infer("simple", inputs(module, first, second))
        assert (answer.as_numpy("OUTPUT0") == first + second).all()


def test_versions(client) -> None:
    connection, module = client

    def version_of(answer) -> str:
        response = answer.get_response()
        return response["model_version"] if isinstance(response, dict) else response.model_version

    assert version_of(connection.infer("versioned", inputs(module))) == "3"
    assert version_of(connection.infer("versioned", inputs(module), model_version="1")) == "1"
    with pytest.raises(InferenceServerException) as caught:
        connection.infer("versioned", inputs(module), model_version="2")
    assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")


def test_many_in_flight(client) -> None:
    """Answers belong to their questions when many are on the way at once."""
    connection, module = client
    if module is thttp:
        waiting = [connection.async_infer("simple", inputs(thttp, FIRST + i), request_id=str(i)) for i in range(64)]
        answers = [request.get_result() for request in waiting]
        ids = [answer.get_response()["id"] for answer in answers]
    else:
        done: queue.Queue = queue.Queue()
        for i in range(64):
            connection.async_infer(
                "simple", inputs(tgrpc, FIRST + i), lambda result, error: done.put((result, error)), request_id=str(i)
            )
        pairs = [done.get(timeout=30) for _ in range(64)]
        assert all(error is None for _, error in pairs)
        answers = sorted((result for result, _ in pairs), key=lambda answer: int(answer.get_response().id))
        ids = [answer.get_response().id for answer in answers]
    assert ids == [str(i) for i in range(64)]
    for i, answer in enumerate(answers):
        assert (answer.as_numpy("OUTPUT0") == FIRST + i + ONES).all()


def test_asyncio_clients(server) -> None:
    async def ask(module, address: str) -> None:
        async with module.InferenceServerClient(address) as connection:
            assert await connection.is_server_ready()
            assert (await connection.get_model_metadata("simple")) is not None
            answers = await asyncio.gather(*(connection.infer("simple", inputs(module, FIRST * i)) for i in range(16)))
            for i, answer in enumerate(answers):
                assert (answer.as_numpy("OUTPUT0") == FIRST * i + ONES).all()
            with pytest.raises(InferenceServerException):
                await connection.infer("absent", inputs(module))

    asyncio.run(ask(thttp_aio, server.http))
    asyncio.run(ask(tgrpc_aio, server.grpc))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression_http(http, algorithm: str) -> None:
    rows = np.tile(FIRST, (64, 1))
    answer = http.infer(
        "simple",
        inputs(thttp, rows, rows),
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert (answer.as_numpy("OUTPUT0") == rows * 2).all()


@pytest.mark.parametrize("algorithm", ["gzip"])
def test_compression_grpc(grpc, algorithm: str) -> None:
    rows = np.tile(FIRST, (64, 1))
    answer = grpc.infer("simple", inputs(tgrpc, rows, rows), compression_algorithm=algorithm)
    assert (answer.as_numpy("OUTPUT0") == rows * 2).all()


def test_priority_and_timeout(client) -> None:
    connection, module = client
    answer = connection.infer("simple", inputs(module), priority=1, timeout=5_000_000)
    assert (answer.as_numpy("OUTPUT0") == FIRST + ONES).all()


def test_parameters_of_the_client(client) -> None:
    """Parameters that mean nothing to the model are no error."""
    connection, module = client
    answer = connection.infer("simple", inputs(module), parameters={"trace": "abc", "attempt": 2, "flag": True})
    assert (answer.as_numpy("OUTPUT0") == FIRST + ONES).all()


@pytest.mark.parametrize(
    ("model", "change", "status_http", "status_grpc", "word"),
    [
        ("absent", {}, "404", "StatusCode.NOT_FOUND", "absent"),
        ("simple", {"shape": (1, 15)}, "400", "StatusCode.INVALID_ARGUMENT", "INPUT0"),
        ("simple", {"datatype": "FP32"}, "400", "StatusCode.INVALID_ARGUMENT", "INPUT0"),
        ("simple", {"name": "OTHER"}, "400", "StatusCode.INVALID_ARGUMENT", "OTHER"),
        ("simple", {"output": "NOWHERE"}, "400", "StatusCode.INVALID_ARGUMENT", "NOWHERE"),
        ("simple", {"missing": True}, "400", "StatusCode.INVALID_ARGUMENT", "INPUT1"),
    ],
    ids=["model", "shape", "datatype", "unknown-input", "unknown-output", "missing-input"],
)
def test_mistakes(client, model: str, change: dict, status_http: str, status_grpc: str, word: str) -> None:
    """The error has the right status and names what was wrong."""
    connection, module = client
    shape, datatype = change.get("shape", (1, 16)), change.get("datatype", "INT32")
    wrong = module.InferInput(change.get("name", "INPUT0"), shape, datatype)
    wrong.set_data_from_numpy(np.ones(shape, np.float32 if datatype == "FP32" else np.int32))
    tensors = [wrong] if change.get("missing") else [wrong, inputs(module)[1]]
    outputs = [module.InferRequestedOutput(change["output"])] if "output" in change else None
    with pytest.raises(InferenceServerException) as caught:
        connection.infer(model, tensors, outputs=outputs)
    assert caught.value.status() == (status_http if module is thttp else status_grpc)
    assert word in caught.value.message()


def test_a_true_prediction(client) -> None:
    """The bundled model knows the digits of the test set that the sample request comes from."""
    import json

    from fixtures.models import BUNDLED

    connection, module = client
    sample = json.loads((BUNDLED / "digits" / "sample.json").read_text())["inputs"][0]
    tensor = module.InferInput("image", sample["shape"], "FP32")
    tensor.set_data_from_numpy(np.array(sample["data"], np.float32).reshape(sample["shape"]))
    answer = connection.infer("digits", [tensor])
    assert answer.as_numpy("digit").ravel().tolist() == [7]
    assert answer.as_numpy("probabilities")[0].argmax() == 7
    assert abs(answer.as_numpy("probabilities").sum() - 1.0) < 1e-5
