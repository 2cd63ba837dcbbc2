"""A picker that names the servers that a test wants. The real one is part of `tessera-fleet`; this one tests Envoy's configuration
alone. It speaks Envoy's service `ext_proc` with messages written byte by byte, so that no protocol files are needed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures

import grpc

HEADER = b"x-gateway-destination-endpoint"
# The first byte of a ProcessingRequest: field 2, request_headers; field 3, response_headers.
REQUEST_HEADERS = b"\x12"
RESPONSE_HEADERS = b"\x1a"


def field(number: int, content: bytes) -> bytes:
    """A field of a message with a length, as protobuf encodes it; short ones only."""
    assert len(content) < 16384
    size = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 127 | 128, len(content) >> 7])
    return bytes([number << 3 | 2]) + size + content


def headers_set(headers: dict[bytes, bytes]) -> bytes:
    """ProcessingResponse.request_headers(1).response(1).header_mutation(2).set_headers(1).header(1)."""
    options = b"".join(field(1, field(1, field(1, name) + field(3, value))) for name, value in headers.items())
    return field(1, field(1, field(2, options)))


class Picker:
    """A picker on a free loopback port. As a context manager, it stops itself."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.requests = self.responses = self.bodies = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        method = grpc.stream_stream_rpc_method_handler(self._process)
        service = "envoy.service.ext_proc.v3.ExternalProcessor"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Process": method}),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Picker:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait(10)

    def name(self, *addresses: str) -> None:
        """Names these servers from now on, best first."""
        self.headers = {HEADER: ",".join(addresses).encode()} if addresses else {}

    def _process(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        for message in messages:
            if message.startswith(REQUEST_HEADERS):
                self.requests += 1
                yield headers_set(self.headers)
            elif message.startswith(RESPONSE_HEADERS):
                self.responses += 1
                yield field(2, b"")
            else:
                self.bodies += 1
