"""KServe's own inference clients, REST and gRPC."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput

SENT = np.arange(32, dtype=np.int32).reshape(2, 16)
ONES = np.ones_like(SENT)


def request(binary: bool, version: str | None = None) -> InferRequest:
    tensors = []
    for name, array in (("INPUT0", SENT), ("INPUT1", ONES)):
        tensor = InferInput(name, list(array.shape), "INT32")
        tensor.set_data_from_numpy(array, binary_data=binary)
        tensors.append(tensor)
    return InferRequest("simple", tensors, request_id="k1", model_version=version)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_rest_infer(server, binary: bool) -> None:
    async def ask():
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await client.infer(f"http://{server.http}", request(binary), model_name="simple")

    answer = asyncio.run(ask())
    assert (answer.id, answer.model_name) == ("k1", "simple")
    found = {output.name: output.as_numpy() for output in answer.outputs}
    assert (found["OUTPUT0"] == SENT + ONES).all() and (found["OUTPUT1"] == SENT - ONES).all()


def test_rest_binary_outputs(server) -> None:
    async def ask():
        wanted = request(True)
        wanted.request_outputs = [RequestedOutput("OUTPUT1", parameters={"binary_data": True})]
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await client.infer(f"http://{server.http}", wanted, model_name="simple")

    answer = asyncio.run(ask())
    assert [output.name for output in answer.outputs] == ["OUTPUT1"]
    assert (answer.outputs[0].as_numpy() == SENT - ONES).all()


def test_rest_health(server) -> None:
    async def ask():
        url = f"http://{server.http}"
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return [
                await client.is_server_live(url),
                await client.is_server_ready(url),
                await client.is_model_ready(url, "simple"),
                await client.is_model_ready(url, "absent"),
            ]

    assert asyncio.run(ask()) == [True, True, True, False]


def test_rest_error_has_its_text(server) -> None:
    async def ask():
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            await client.infer(f"http://{server.http}", request(False), model_name="absent")

    with pytest.raises(Exception, match=r"absent.*404") as caught:
        asyncio.run(ask())
    assert "HTTPStatusError" in type(caught.value).__name__


def test_grpc(server) -> None:
    async def ask():
        async with InferenceGRPCClient(server.grpc) as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert await client.is_model_ready("simple")
            assert not await client.is_model_ready("absent")
            return await client.infer(request(True))

    answer = asyncio.run(ask())
    found = {output.name: output.as_numpy() for output in answer.outputs}
    assert (found["OUTPUT0"] == SENT + ONES).all() and (found["OUTPUT1"] == SENT - ONES).all()
