"""Requests other than inference: gRPC health and reflection, plain HTTP, metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import grpc as plain
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService"])
def test_grpc_health(server, service: str) -> None:
    with plain.insecure_channel(server.grpc) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_grpc_reflection(server) -> None:
    """grpcurl needs no .proto file."""
    with plain.insecure_channel(server.grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        file = database.FindFileContainingSymbol("inference.GRPCInferenceService")
    service = next(service for service in file.service if service.name == "GRPCInferenceService")
    assert {"ModelInfer", "ModelStreamInfer", "ServerReady", "ModelConfig"} <= {
        method.name for method in service.method
    }


def post(server, path: str, body: bytes, headers: dict[str, str]) -> tuple[dict, dict]:
    request = urllib.request.Request(f"http://{server.http}{path}", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read()), {key.lower(): value for key, value in answer.headers.items()}


def test_curl(server) -> None:
    """The request of the README, sent the way curl sends it: as a form."""
    from fixtures.models import BUNDLED

    body = (BUNDLED / "digits" / "sample.json").read_bytes()
    answer, headers = post(
        server, "/v2/models/digits/infer", body, {"Content-Type": "application/x-www-form-urlencoded"}
    )
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["digit"] == [7]
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_as_json_numbers(server, datatype: str) -> None:
    if server.process is None or f"identity_{datatype.lower()}" in server.lacks:
        pytest.skip("not served here")
    body = json.dumps(
        {"inputs": [{"name": "INPUT0", "shape": [1, 3], "datatype": datatype, "data": [1.5, -0.15625, 0]}]}
    )
    answer, _ = post(server, f"/v2/models/identity_{datatype.lower()}/infer", body.encode(), {})
    assert answer["outputs"][0]["data"] == [1.5, -0.15625, 0]


def test_timing_headers(server) -> None:
    if server.process is None:
        pytest.skip("only our server sends them")
    body = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1]}]}'
    _, headers = post(server, "/v2/models/identity_fp32/infer", body, {})
    with plain.insecure_channel(server.grpc) as channel:
        request = service_pb2.ModelInferRequest(model_name="identity_fp32")
        tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 1])
        tensor.contents.fp32_contents.append(1.0)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        _, call = stub.ModelInfer.with_call(request, timeout=10)
        metadata = dict(call.initial_metadata())
    for sent in (headers, metadata):
        for name in ("x-tessera-queue-us", "x-tessera-batch-wait-us", "x-tessera-compute-us"):
            assert int(sent[name]) >= 0
        assert int(sent["x-tessera-batch-rows"]) == 1


def test_metrics(server) -> None:
    """Counters move by exactly what was asked; histograms are in seconds."""
    if server.process is None:
        pytest.skip("only our server's metrics are known")

    def read() -> dict[str, float]:
        with urllib.request.urlopen(server.process.metrics_url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}

    def count(found: dict[str, float]) -> float:
        return sum(
            value
            for key, value in found.items()
            if key.startswith("tessera_request_seconds_count") and 'model="identity_int8"' in key
        )

    body = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"INT8","data":[1]}]}'
    before = count(read())
    for _ in range(3):
        post(server, "/v2/models/identity_int8/infer", body, {})
    after = read()
    assert count(after) - before == 3
    for histogram in (
        "tessera_queue_seconds",
        "tessera_batch_wait_seconds",
        "tessera_compute_seconds",
        "tessera_request_seconds",
    ):
        assert any(key.startswith(f"{histogram}_bucket") for key in after)


def test_a_deadline_that_cannot_be_met(server) -> None:
    """Refused with a reason that a program can read, instead of computed too late."""
    if server.process is None:
        pytest.skip("Triton computes it all the same")
    rows = [[1.0] * 512] * 8
    body = {
        "parameters": {"timeout": 1},
        "inputs": [{"name": "INPUT0", "shape": [8, 512], "datatype": "FP32", "data": rows}],
    }
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, "/v2/models/slow/infer", json.dumps(body).encode(), {})
    answer = caught.value
    assert answer.code in (503, 504)
    assert answer.headers["x-tessera-reason"] and answer.headers["x-request-id"]
    assert answer.code != 503 or int(answer.headers["retry-after"]) >= 1
    assert json.loads(answer.read())["error"]
