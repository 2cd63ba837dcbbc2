#!/usr/bin/env python3
"""Sends every case of the table to the server and checks the response, its time, and the server's memory afterwards.

    TESSERA_BIN=... negative/run.py            starts the server
    negative/run.py --base-url 127.0.0.1:8000  uses a running one (no check of its memory)

Every malformed request gets a 4xx with an `error` that names the field, about as fast as a good request of the same
size. Afterwards the server still serves, and its memory has not grown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from negative import rpc, table  # noqa: E402

TRIES = 5
# A rejection may take this many times as long as a good request of the same size, but always 10 ms.
SLOWDOWN_MAX, SECONDS_MIN = 5.0, 0.010
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


class Baseline:
    """Median times of good requests by size, measured on first use."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._seconds: dict[int, float] = {}

    def seconds(self, size: int) -> float:
        """For requests of up to `size` bytes, rounded up to a power of four."""
        power = 4 ** math.ceil(math.log(max(size, 256), 4))
        if power not in self._seconds:
            body = json.dumps({"inputs": [table.tensor()]}).encode()
            payload = table.http(table.INFER, body.ljust(min(power, table.BODY_LIMIT)))
            answers = [ask(self._address, payload) for _ in range(TRIES)]
            assert all(status == 200 for status, *_ in answers), (power, answers[0][:2])
            self._seconds[power] = statistics.median(seconds for *_, seconds in answers)
        return self._seconds[power]


def good(address: tuple[str, int]) -> bool:
    status, body, _ = ask(address, table.post(table.tensor()))
    return status == 200 and b'"outputs"' in body


def run(address: tuple[str, int], grpc_address: str | None, memory) -> int:
    cases = table.cases()
    if not good(address):
        print("FAIL the server does not answer a good request")
        return 1
    for case in cases:
        ask(address, case.payload, case.half_close)
    before = memory()
    baseline = Baseline(address)
    failures, slowest, total = 0, (0.0, ""), 0
    for case in cases:
        answers = [ask(address, case.payload, case.half_close) for _ in range(TRIES)]
        total += TRIES
        median = statistics.median(seconds for *_, seconds in answers)
        if not case.bounded:
            slowest = max(slowest, (max(seconds for *_, seconds in answers), case.name))
        problem = next((p for status, body, _ in answers if (p := problem_of(case, status, body))), None)
        limit = max(SECONDS_MIN, SLOWDOWN_MAX * baseline.seconds(len(case.payload)))
        if problem is None and median > limit and not case.bounded:
            problem = f"median of {TRIES} tries {median * 1e3:.1f} ms, expected at most {limit * 1e3:.1f} ms"
        if problem is None and not good(address):
            problem = "the server no longer answers a good request"
        if problem:
            failures += 1
            print(f"FAIL {case.name}: {problem}")
    passed = len(cases) - failures
    if grpc_address:
        rpc_passed, rpc_failures = rpc.run(grpc_address)
        passed, failures = passed + rpc_passed, failures + rpc_failures
    growth = memory() - before
    if growth > MEMORY_GROWTH_MAX:
        failures += 1
        print(f"FAIL memory grew by {growth / 2**20:.1f} MiB over {total} malformed requests")
    print(f"negative: slowest response {slowest[0] * 1e3:.1f} ms ({slowest[1]}); memory {growth / 2**20:+.1f} MiB")
    print(f"negative: {passed} passed, {failures} failed")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="host:port of a running server; its memory is not checked")
    parser.add_argument("--grpc-url", help="host:port of its gRPC")
    arguments = parser.parse_args()
    if arguments.base_url:
        host, port = arguments.base_url.rsplit(":", 1)
        return run((host, int(port)), arguments.grpc_url, lambda: 0)
    from fixtures import models
    from fixtures.tessera import Tessera

    with tempfile.TemporaryDirectory(prefix="negative-") as folder:
        repository = Path(folder)
        models.build(repository)
        with Tessera(repository, config=models.settings(repository, "ort")) as server:
            server.wait_ready()
            host, port = server.http_address.rsplit(":", 1)
            return run((host, int(port)), server.grpc_address, server.rss_bytes)


if __name__ == "__main__":
    sys.exit(main())
