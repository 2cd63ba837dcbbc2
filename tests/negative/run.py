#!/usr/bin/env python3
"""Send every line of the table to the server and check what comes back, how fast, and what it leaves behind.

    TESSERA_BIN=... negative/run.py            starts the server
    negative/run.py --base-url 127.0.0.1:8000  uses a running one (no check of its memory)

Every malformed request gets a 4xx with an `error` that names the field, the median of several tries within 10 ms;
afterwards the server still serves, and its memory is back where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
MEDIAN_MAX = 0.010
MEMORY_GROWTH_MAX = 16 * 2**20


def ask(address: tuple[str, int], payload: bytes) -> tuple[int, bytes, float]:
    """(status, body, seconds); status 0 when the connection was closed without an answer."""
    with socket.create_connection(address, timeout=5) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        # A server may answer and close before it has taken everything: that is the point of a limit.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            connection.sendall(payload)
            if payload.startswith(b"\x16") or b"\r\n\r\n" not in payload:
                connection.shutdown(socket.SHUT_WR)
        received = b""
        # A server that neither answers nor closes shows as status 0 with a time that fails the case.
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while not complete(received) and (chunk := connection.recv(65536)):
                received += chunk
        seconds = time.perf_counter() - started
    if not received.startswith(b"HTTP/1."):
        return 0, b"", seconds
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body, seconds


def complete(received: bytes) -> bool:
    """Whether a whole response is there; waiting for the close would measure the close."""
    head, found, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(found) and length is not None and len(body) >= int(length[1])


def problem_of(case: table.Case, status: int, body: bytes, median: float) -> str | None:
    if status not in case.statuses:
        return f"status {status}, expected {' or '.join(map(str, case.statuses))}: {body[:200]!r}"
    if case.names or (status == 400 and not case.name.startswith("http-")):
        try:
            text = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            # The HTTP layer itself answers some requests, before there is anyone to say why.
            return None if not body and not case.names else f"status {status} without an error text: {body[:200]!r}"
        if case.names not in text:
            return f"the error does not name {case.names!r}: {text!r}"
    if median > MEDIAN_MAX and not case.bounded:
        return f"median of {TRIES} tries {median * 1e3:.1f} ms, want at most {MEDIAN_MAX * 1e3:.0f} ms"
    return None


def good(address: tuple[str, int]) -> bool:
    status, body, _ = ask(address, table.post(table.tensor()))
    return status == 200 and b'"outputs"' in body


def run(address: tuple[str, int], grpc_address: str | None, memory) -> int:
    cases = table.cases()
    if not good(address):
        print("FAIL the server does not answer a good request to begin with")
        return 1
    for case in cases:
        ask(address, case.payload)
    before = memory()
    failures, slowest, total = 0, (0.0, ""), 0
    for case in cases:
        answers = [ask(address, case.payload) for _ in range(TRIES)]
        total += TRIES
        median = statistics.median(seconds for *_, seconds in answers)
        if not case.bounded:
            slowest = max(slowest, (max(seconds for *_, seconds in answers), case.name))
        problem = next((p for status, body, _ in answers if (p := problem_of(case, status, body, median))), None)
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
    print(f"negative: slowest single answer {slowest[0] * 1e3:.1f} ms ({slowest[1]}); memory {growth / 2**20:+.1f} MiB")
    print(f"negative: {passed} passed, {failures} failed")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="host:port of a running server")
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
