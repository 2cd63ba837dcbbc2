#!/usr/bin/env python3
"""Sends every case of the table to the server and checks the response, its time, and the server's memory afterwards.

    TESSERA_BIN=... negative/run.py            starts the server
    negative/run.py --base-url 127.0.0.1:8000  uses a running one, whose memory and CPU time are not checked

Every malformed request gets a 4xx with an `error` that names the field. It takes no more time, and no more of the server's
CPU time, than twice a good request of the same size. The server still serves, and its memory has not grown.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from negative import rpc, table  # noqa: E402

TRIES = 10
# A rejection may take twice as long as a good request of the same size, plus this. Both are measured alternately.
COST_MAX, SPARE_SECONDS = 2.0, 0.002
MEMORY_GROWTH_MAX = 16 * 2**20


def ask(address: tuple[str, int], payload: bytes, half_close: bool = False) -> tuple[int, bytes, float]:
    """(status, body, seconds). The status is 0 if the connection was closed without a response."""
    with socket.create_connection(address, timeout=5) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        # The server may respond and close before it has read everything.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            connection.sendall(payload)
            if half_close or payload.startswith(b"\x16") or b"\r\n\r\n" not in payload:
                connection.shutdown(socket.SHUT_WR)
        received = b""
        # A server that neither responds nor closes gives status 0, which fails the case.
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while not complete(received) and (chunk := connection.recv(65536)):
                received += chunk
        seconds = time.perf_counter() - started
    if not received.startswith(b"HTTP/1."):
        return 0, b"", seconds
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body, seconds


def complete(received: bytes) -> bool:
    """Whether the response is complete. Waiting for the close would measure the close."""
    head, found, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(found) and length is not None and len(body) >= int(length[1])


def problem_of(case: table.Case, status: int, body: bytes) -> str | None:
    if status not in case.statuses:
        return f"status {status}, expected {' or '.join(map(str, case.statuses))}: {body[:200]!r}"
    if case.names or (status == 400 and not case.name.startswith("http-")):
        try:
            text = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            # The HTTP library itself rejects some requests, without a body.
            return None if not body and not case.names else f"status {status} without an error text: {body[:200]!r}"
        if case.names not in text:
            return f"the error does not name {case.names!r}: {text!r}"
    return None


@dataclass(frozen=True)
class Answer:
    """One response, its time, and the CPU time that the server used for it."""

    status: int
    body: bytes
    seconds: float
    cpu_seconds: float

    @property
    def is_right(self) -> bool:
        return self.status == 200 and b'"outputs"' in self.body


class Server:
    """The server under test. `cpu` returns the CPU time that it has used, in seconds."""

    def __init__(self, address: tuple[str, int], cpu: Callable[[], float]) -> None:
        self._address, self._cpu = address, cpu

    def ask(self, payload: bytes, half_close: bool = False) -> Answer:
        before = self._cpu()
        status, body, seconds = ask(self._address, payload, half_close)
        return Answer(status, body, seconds, self._cpu() - before)

    def problem(self, case: table.Case) -> str | None:
        """Send the case and a good request alternately. What is wrong with the responses, or with their cost."""
        good = good_request(case)
        rejected, accepted = [], []
        for _ in range(TRIES):
            rejected.append(self.ask(case.payload, case.half_close))
            accepted.append(self.ask(good))
            if problem := problem_of(case, rejected[-1].status, rejected[-1].body):
                return problem
            if not accepted[-1].is_right:
                return f"the next good request gets status {accepted[-1].status}: {accepted[-1].body[:200]!r}"
        return problem_of_cost(rejected, accepted)


def good_request(case: table.Case) -> bytes:
    """A good request of the same size. For a case that inflates, one that decompresses to exactly the limit."""
    body = json.dumps({"inputs": [table.tensor()]}).encode()
    if case.inflates:
        body = gzip.compress(body.ljust(table.BODY_LIMIT), compresslevel=1)
        return table.http(table.INFER, body, Content_Encoding="gzip")
    return table.http(table.INFER, body.ljust(len(case.payload) - len(table.http(table.INFER))))


def problem_of_cost(rejected: list[Answer], accepted: list[Answer]) -> str | None:
    """Whether rejections take longer, or more CPU time, than good requests of the same size justify."""
    # Other programs can only delay a try, so the fastest one shows the server. CPU time does not include their time.
    figures: dict[str, Callable[[list[Answer]], float]] = {
        "fastest response": lambda tries: min(answer.seconds for answer in tries),
        "mean CPU time": lambda tries: sum(answer.cpu_seconds for answer in tries) / len(tries),
    }
    for name, figure in figures.items():
        limit = COST_MAX * figure(accepted) + SPARE_SECONDS
        if figure(rejected) > limit:
            return (
                f"{name} {figure(rejected) * 1e3:.2f} ms, expected at most {limit * 1e3:.2f} ms: "
                f"a good request of its size takes {figure(accepted) * 1e3:.2f} ms"
            )
    return None


def run(address: tuple[str, int], grpc_address: str | None, memory: Callable[[], int], cpu: Callable[[], float]) -> int:
    cases = table.cases()
    server = Server(address, cpu)
    if not server.ask(table.post(table.tensor())).is_right:
        print("FAIL the server does not answer a good request")
        return 1
    for case in cases:
        server.ask(case.payload, case.half_close)
        server.ask(good_request(case))
    before = memory()
    failures = 0
    for case in cases:
        if problem := server.problem(case):
            failures += 1
            print(f"FAIL {case.name}: {problem}")
    passed = len(cases) - failures
    if grpc_address:
        rpc_passed, rpc_failures = rpc.run(grpc_address)
        passed, failures = passed + rpc_passed, failures + rpc_failures
    growth = memory() - before
    if growth > MEMORY_GROWTH_MAX:
        failures += 1
        print(f"FAIL memory grew by {growth / 2**20:.1f} MiB over {TRIES * len(cases)} malformed requests")
    print(f"negative: memory {growth / 2**20:+.1f} MiB over {TRIES * len(cases)} malformed requests")
    print(f"negative: {passed} passed, {failures} failed")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="host:port of a running server; its memory and CPU time are not checked")
    parser.add_argument("--grpc-url", help="host:port of its gRPC")
    arguments = parser.parse_args()
    if arguments.base_url:
        host, port = arguments.base_url.rsplit(":", 1)
        return run((host, int(port)), arguments.grpc_url, lambda: 0, lambda: 0.0)
    from fixtures import models
    from fixtures.tessera import Tessera

    with tempfile.TemporaryDirectory(prefix="negative-") as folder:
        repository = Path(folder)
        models.build(repository)
        with Tessera(repository, config=models.settings(repository, "ort")) as server:
            server.wait_ready()
            host, port = server.http_address.rsplit(":", 1)
            return run((host, int(port)), server.grpc_address, server.rss_bytes, server.cpu_seconds)


if __name__ == "__main__":
    sys.exit(main())
