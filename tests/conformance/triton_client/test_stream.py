"""ModelStreamInfer through tritonclient's stream, and clients that do not wait."""

from __future__ import annotations

import queue

import grpc as plain
import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException


def tensor_of(array: np.ndarray):
    tensor = tgrpc.InferInput("INPUT0", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


@pytest.fixture
def stream(server):
    """A client with an open stream, and the queue its answers arrive in."""
    answers: queue.Queue = queue.Queue()
    with tgrpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        yield client, answers
        client.stop_stream()


def test_stream_answers_every_request(stream) -> None:
    client, answers = stream
    for i in range(100):
        client.async_stream_infer("identity_fp32", [tensor_of(np.full((1, 4), i, np.float32))], request_id=str(i))
    found = {}
    for _ in range(100):
        result, error = answers.get(timeout=30)
        assert error is None
        found[result.get_response().id] = result.as_numpy("OUTPUT0")
    assert set(found) == {str(i) for i in range(100)}
    assert all((found[str(i)] == i).all() for i in range(100))


def test_stream_survives_a_mistake(stream) -> None:
    client, answers = stream
    client.async_stream_infer("absent", [tensor_of(np.ones((1, 4), np.float32))], request_id="bad")
    result, error = answers.get(timeout=30)
    assert result is None and "absent" in error.message()
    client.async_stream_infer("identity_fp32", [tensor_of(np.ones((1, 4), np.float32))], request_id="good")
    result, error = answers.get(timeout=30)
    assert error is None and result.get_response().id == "good"


def test_stream_marks_the_final_response(stream) -> None:
    """Clients of decoupled models look for this parameter on every response."""
    client, answers = stream
    client.async_stream_infer(
        "identity_fp32", [tensor_of(np.ones((1, 4), np.float32))], request_id="1", enable_empty_final_response=True
    )
    result, error = answers.get(timeout=30)
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param


def test_stream_mixes_models(server) -> None:
    """One stream, two models, answers by id, end of stream after half-close."""

    def messages():
        for i in range(20):
            message = service_pb2.ModelInferRequest(model_name="identity_fp32" if i % 2 else "identity_fp64", id=str(i))
            message.inputs.add(name="INPUT0", datatype="FP32" if i % 2 else "FP64", shape=[1, 1])
            message.raw_input_contents.append(np.array([i], np.float32 if i % 2 else np.float64).tobytes())
            yield message

    with plain.insecure_channel(server.grpc) as channel:
        replies = list(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(messages(), timeout=30))
    assert sorted(int(reply.infer_response.id) for reply in replies) == list(range(20))
    assert not any(reply.error_message for reply in replies)


def slow_rows(module, rows: int):
    array = np.ones((rows, 512), np.float32)
    tensor = module.InferInput("INPUT0", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def test_client_timeout_grpc(server, grpc) -> None:
    """The client's deadline ends the call, and the server still serves."""
    with pytest.raises(InferenceServerException) as caught:
        grpc.infer("slow", [slow_rows(tgrpc, 64)], client_timeout=0.005)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert grpc.infer("identity_fp32", [tensor_of(np.ones((1, 4), np.float32))]).as_numpy("OUTPUT0").sum() == 4


def test_client_timeout_http(server) -> None:
    short = thttp.InferenceServerClient(server.http, network_timeout=0.005)
    with short, pytest.raises(Exception, match="timed out"):
        short.infer("slow", [slow_rows(thttp, 64)])
    with thttp.InferenceServerClient(server.http) as client:
        assert client.is_server_ready()


def executions(client) -> int:
    return client.get_inference_statistics("slow", as_json=True)["model_stats"][0].get("execution_count", 0)


def test_cancelled_requests_are_not_executed(grpc) -> None:
    """Of a hundred abandoned requests only the few that a lane had already taken are computed."""
    before = int(executions(grpc))
    pending = [
        grpc.async_infer("slow", [slow_rows(tgrpc, 64)], lambda result, error: None, request_id=str(i))
        for i in range(100)
    ]
    for call in pending:
        call.cancel()
    grpc.infer("slow", [slow_rows(tgrpc, 64)])
    executed = int(executions(grpc)) - before - 1
    print(f"{executed} of 100 cancelled requests were executed")
    assert executed < 20
