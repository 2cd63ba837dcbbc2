"""The gRPC half of the table: messages that no well-behaved stub would send."""

from __future__ import annotations

import os

import grpc

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
# What a client's mistake may be called; UNKNOWN would be a handler that fell over.
REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "OUT_OF_RANGE", "INTERNAL"}


def field(number: int, content: bytes) -> bytes:
    """One length-delimited protobuf field."""
    length, prefix = len(content), b""
    while length > 127:
        prefix += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + prefix + bytes([length]) + content


def payloads() -> dict[str, tuple[str, bytes, set[str]]]:
    """name -> (method, message, codes it may get)."""
    seed = 7
    noise = bytes((seed := (seed * 1103515245 + 12345) & 0x7FFFFFFF) >> 16 & 255 for _ in range(4096))
    name = field(1, b"identity_fp32")
    nested = b""
    for _ in range(2000):
        nested = field(5, nested)
    shape = b"\x18" + b"\xff" * 9 + b"\x01"
    return {
        "noise": (INFER, noise, REFUSALS),
        "empty": (INFER, b"", {"NOT_FOUND", "INVALID_ARGUMENT"}),
        "truncated": (INFER, name + b"\x2a\xff\x01", REFUSALS),
        "length-overflow": (INFER, name + b"\x2a" + b"\xff" * 9 + b"\x7f", REFUSALS),
        "name-not-utf8": (INFER, field(1, b"\xff\xfe"), REFUSALS),
        "nested": (INFER, name + field(5, nested), REFUSALS),
        "many-inputs": (INFER, name + field(5, b"") * 100_000, {"INVALID_ARGUMENT"}),
        "many-raw": (INFER, name + field(7, b"") * 100_000, {"INVALID_ARGUMENT"}),
        "negative-shape": (
            INFER,
            name + field(5, field(1, b"INPUT0") + field(2, b"FP32") + shape) + field(7, b"\0" * 4),
            {"INVALID_ARGUMENT"},
        ),
        "over-the-limit": (INFER, name + field(7, b"\0" * (64 * 2**20 + 1)), {"RESOURCE_EXHAUSTED", "OUT_OF_RANGE"}),
        "unknown-method": ("/inference.GRPCInferenceService/Nope", b"", {"UNIMPLEMENTED"}),
        "unknown-service": ("/nope.Nope/Nope", b"", {"UNIMPLEMENTED"}),
        "path-traversal": (INFER, field(1, b"../../etc/passwd"), {"NOT_FOUND", "INVALID_ARGUMENT"}),
        "name-huge": (INFER, field(1, b"x" * 2**20), {"NOT_FOUND", "INVALID_ARGUMENT"}),
        "id-huge": (INFER, name + field(3, os.urandom(512).hex().encode() * 1024), {"INVALID_ARGUMENT"}),
    }


def run(address: str) -> tuple[int, int]:
    """(passed, failed)."""
    failed = 0
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        for name, (method, message, codes) in payloads().items():
            call = channel.unary_unary(method, lambda raw: raw, lambda raw: raw)
            try:
                call(message, timeout=20)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            if code not in codes:
                failed += 1
                print(f"FAIL grpc-{name}: {code}, expected {' or '.join(sorted(codes))}")
        stream = channel.stream_stream(STREAM, lambda raw: raw, lambda raw: raw)
        try:
            list(stream(iter([b"\xff\xff"]), timeout=20))
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        if code not in REFUSALS:
            failed += 1
            print(f"FAIL grpc-stream-noise: {code}")
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", lambda raw: raw, lambda raw: raw)
        if live(b"", timeout=20) != b"\x08\x01":
            failed += 1
            print("FAIL grpc: the server is no longer live")
    return len(payloads()) + 2 - failed, failed
