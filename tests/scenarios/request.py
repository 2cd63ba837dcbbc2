"""Sends the request of one scenario: HTTP without a client library, so that nothing is corrected, or gRPC."""

from __future__ import annotations

import gzip
import http.client
import json
import struct
import zlib

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc

from scenarios.answer import Answer

PACKING = {
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
    "bool": "?",
}


def tensor_bytes(described: dict) -> bytes:
    """`{f32: [1, 2]}`, `{bytes: [a, b]}` or `{hex: "00ff"}` as the wire has it."""
    ((kind, values),) = described.items()
    if kind == "hex":
        return bytes.fromhex(values)
    if kind == "bytes":
        return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in values)
    return struct.pack(f"<{len(values)}{PACKING[kind]}", *values)


def http_body(scenario: dict) -> tuple[bytes | None, dict[str, str]]:
    """The body and the headers that belong to it."""
    headers = {str(key): str(value) for key, value in scenario.get("headers", {}).items()}
    if "json" in scenario:
        body = json.dumps(scenario["json"]).encode()
    elif "head" in scenario:
        head = json.dumps(scenario["head"]).encode()
        body = head + b"".join(tensor_bytes(tensor) for tensor in scenario.get("tail", []))
        headers.setdefault("Inference-Header-Content-Length", str(len(head)))
    elif "tail" in scenario:
        body = b"".join(tensor_bytes(tensor) for tensor in scenario["tail"])
    elif "body" in scenario:
        body = scenario["body"].encode()
    else:
        return None, headers
    encoding = scenario.get("encode")
    if encoding == "gzip":
        body = gzip.compress(body)
    elif encoding == "deflate":
        body = zlib.compress(body)
    if encoding:
        headers.setdefault("Content-Encoding", encoding)
    return body, headers


class Target:
    """One server to ask."""

    def __init__(self, http_address: str, grpc_address: str | None) -> None:
        self._http = http_address
        self._channel = grpc.insecure_channel(grpc_address) if grpc_address else None

    def ask(self, scenario: dict) -> Answer:
        return self._ask_grpc(scenario) if "grpc" in scenario else self._ask_http(scenario)

    def _ask_http(self, scenario: dict) -> Answer:
        body, headers = http_body(scenario)
        connection = http.client.HTTPConnection(self._http, timeout=20)
        try:
            method, path = scenario["http"].split(" ", 1)
            connection.putrequest(method, path, skip_accept_encoding=True)
            if body is not None:
                headers.setdefault("Content-Length", str(len(body)))
            for key, value in headers.items():
                connection.putheader(key, value)
            connection.endheaders()
            if body:
                connection.send(body)
            response = connection.getresponse()
            return Answer.from_http(response.status, dict(response.getheaders()), response.read())
        except (http.client.HTTPException, OSError) as error:
            return Answer(status=f"no answer: {error}")
        finally:
            connection.close()

    def _ask_grpc(self, scenario: dict) -> Answer:
        if self._channel is None:
            return Answer(status="no gRPC address")
        method = scenario["grpc"]
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        message_of = getattr(service_pb2, f"{method.removesuffix('Stream')}Request", service_pb2.ModelInferRequest)
        messages = [self._message(message_of, one) for one in scenario.get("messages", [scenario.get("message", {})])]
        try:
            if method == "ModelStreamInfer":
                replies = list(stub.ModelStreamInfer(iter(messages), timeout=20))
                return Answer(
                    status="OK", body=[json_format.MessageToDict(r, preserving_proto_field_name=True) for r in replies]
                )
            reply = getattr(stub, method)(messages[0], timeout=20)
            return Answer(status="OK", body=json_format.MessageToDict(reply, preserving_proto_field_name=True))
        except grpc.RpcError as error:
            return Answer(status=error.code().name, body={"error": error.details()})

    @staticmethod
    def _message(message_of, described: dict):
        described = dict(described)
        raw = described.pop("raw", None)
        message = json_format.ParseDict(described, message_of())
        if raw is not None:
            message.raw_input_contents.extend(tensor_bytes(tensor) for tensor in raw)
        return message
