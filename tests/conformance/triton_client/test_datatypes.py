"""Every datatype, there and back, through both transports and every encoding that the client has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from fixtures.models import DATATYPES

EDGES = {
    "BOOL": [[True, False, True], [False, False, True]],
    "UINT8": [[0, 1, 255], [7, 128, 254]],
    "UINT16": [[0, 1, 65535], [7, 256, 65534]],
    "UINT32": [[0, 1, 2**32 - 1], [7, 65536, 2**31]],
    "UINT64": [[0, 1, 2**64 - 1], [7, 2**53 + 1, 2**63]],
    "INT8": [[-128, 0, 127], [1, -1, 5]],
    "INT16": [[-32768, 0, 32767], [1, -1, 5]],
    "INT32": [[-(2**31), 0, 2**31 - 1], [1, -1, 5]],
    "INT64": [[-(2**63), 0, 2**63 - 1], [1, -(2**53) - 1, 5]],
    "FP16": [[-65504.0, 0.0, 0.1], [6e-8, 1.5, -0.0]],
    "FP32": [[-3.4028235e38, 0.1, 1e-45], [1.5, 16777217.0, -0.0]],
    "FP64": [[-1.7976931348623157e308, 0.1, 5e-324], [1.5, 2.0**53 + 2, -0.0]],
    "BYTES": [["", "plain", "zażółć 日本"], ['quo"te\\', "new\nline", "\u0001"]],
    # Exact in bfloat16, which keeps 8 bits of fraction.
    "BF16": [[1.5, -2.0, 0.0], [3.3895314e38, 2.0**-126, -0.15625]],
}
NUMPY = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_, "BF16": ml_dtypes.bfloat16}


def array_of(datatype: str) -> np.ndarray:
    if datatype == "BYTES":
        return np.array([[text.encode() for text in row] for row in EDGES[datatype]], dtype=object)
    return np.array(EDGES[datatype], dtype=NUMPY.get(datatype, datatype.lower()))


def skip_if_lacking(server, datatype: str) -> str:
    name = f"identity_{datatype.lower()}"
    if name in server.lacks:
        pytest.skip(f"{name} is not served by this engine; tests/lifecycle checks the refusal")
    return name


def assert_same(answer: np.ndarray, sent: np.ndarray) -> None:
    assert answer.shape == sent.shape
    if sent.dtype == object:
        decoded = np.array(
            [item if isinstance(item, bytes) else item.encode() for item in answer.ravel()], dtype=object
        )
        assert decoded.reshape(sent.shape).tolist() == sent.tolist()
    else:
        assert answer.astype(sent.dtype).tobytes() == sent.tobytes()


@pytest.mark.parametrize("binary_out", [True, False], ids=["out-binary", "out-json"])
@pytest.mark.parametrize("binary_in", [True, False], ids=["in-binary", "in-json"])
@pytest.mark.parametrize("datatype", DATATYPES)
def test_http(server, http, datatype: str, binary_in: bool, binary_out: bool) -> None:
    name = skip_if_lacking(server, datatype)
    if datatype in ("FP16", "BF16") and not binary_in:
        pytest.skip("the client itself refuses these as JSON; test_services.py sends them")
    sent = array_of(datatype)
    tensor = thttp.InferInput("INPUT0", sent.shape, datatype)
    tensor.set_data_from_numpy(sent, binary_data=binary_in)
    wanted = thttp.InferRequestedOutput("OUTPUT0", binary_data=binary_out)
    answer = http.infer(name, [tensor], outputs=[wanted], request_id="7")
    response = answer.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("7", name, "1")
    output = answer.get_output("OUTPUT0")
    assert (output["datatype"], output["shape"]) == (datatype, list(sent.shape))
    if datatype in ("FP16", "BF16") and not binary_out:
        assert np.array(output["data"], np.float32).reshape(sent.shape).astype(sent.dtype).tobytes() == sent.tobytes()
    else:
        assert_same(answer.as_numpy("OUTPUT0"), sent)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_grpc(server, grpc, datatype: str) -> None:
    name = skip_if_lacking(server, datatype)
    sent = array_of(datatype)
    tensor = tgrpc.InferInput("INPUT0", sent.shape, datatype)
    tensor.set_data_from_numpy(sent)
    answer = grpc.infer(name, [tensor], request_id="7")
    response = answer.get_response()
    assert (response.id, response.model_name, response.model_version) == ("7", name, "1")
    assert (answer.get_output("OUTPUT0").datatype, list(answer.get_output("OUTPUT0").shape)) == (datatype, [2, 3])
    assert_same(answer.as_numpy("OUTPUT0"), sent)


CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(["INT8", "INT16", "INT32"], "int_contents"),
    **dict.fromkeys(["UINT8", "UINT16", "UINT32"], "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@pytest.mark.parametrize("datatype", CONTENTS)
def test_grpc_typed_contents(server, datatype: str) -> None:
    """Tensors in the typed fields of the message, as clients without binary tensors send them."""
    import grpc as plain
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    name = skip_if_lacking(server, datatype)
    sent = array_of(datatype)
    message = service_pb2.ModelInferRequest(model_name=name)
    tensor = message.inputs.add(name="INPUT0", datatype=datatype, shape=sent.shape)
    getattr(tensor.contents, CONTENTS[datatype]).extend(sent.ravel().tolist())
    with plain.insecure_channel(server.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=10)
    assert_same(tgrpc.InferResult(answer).as_numpy("OUTPUT0"), sent)


@pytest.mark.parametrize("shape", [(1, 0), (3, 0), (1, 1), (64, 3)], ids=str)
def test_unusual_shapes(http, grpc, shape: tuple[int, int]) -> None:
    sent = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for client, module in ((http, thttp), (grpc, tgrpc)):
        tensor = module.InferInput("INPUT0", shape, "FP32")
        tensor.set_data_from_numpy(sent)
        assert_same(client.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0"), sent)
