"""Ten thousand idle connections, and one more than the limit."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.synthetic import STEADY
from fixtures.tessera import Tessera
from fixtures.wait import until
from overload import wire
from overload.load import Traffic

IDLE = 10_000
# Connections left for other clients.
OTHERS = 256
# Other open files of this process and of the server.
OTHER_FILES = 256
KIB = 1024
SLO_MS = 250
# Limits on memory per connection. An unused one is a socket and a task; a used one keeps its buffers.
SILENT_BYTES, KEPT_BYTES = 8 * KIB, 32 * KIB


@pytest.fixture
def idle() -> Iterator[int]:
    """Number of connections that this process may open. The server raises its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = min(IDLE, hard - OTHERS - OTHER_FILES)
    if allowed < IDLE:
        print(f"\nthe limit of open files is {hard}: {allowed} connections instead of {IDLE}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, IDLE + OTHERS + OTHER_FILES), hard))
    yield allowed
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask_live(connection: socket.socket) -> int:
    # The server may close a connection over the limit before the request is sent.
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return wire.answer(connection)[0]


def test_idle_connections_are_cheap_and_the_limit_is_reported(tmp_path: Path, idle: int) -> None:
    STEADY.place(tmp_path, "steady")
    config = f'[limits]\nconnections = {idle + OTHERS}\n[models.steady]\nslo = "{SLO_MS}ms"\n'
    config += "[lanes]\ncount = 1\n"
    crowd: list[socket.socket] = []
    with Tessera(tmp_path, config, options=["--engine", "synthetic"]) as server:
        server.wait_ready()
        traffic = Traffic(f"http://{server.http_address}", "steady", STEADY.capacity / 2, SLO_MS)
        alone = traffic.run((4, 1.0)).between(1, 4)
        before = server.rss_bytes()
        silent = idle // 2
        crowd += [wire.connect(server.http_address) for _ in range(silent)]
        # Connections are accepted in order: once a later one is answered, all of these are.
        crowd.append(wire.connect(server.http_address))
        assert ask_live(crowd[-1]) == 200
        with_silent = server.rss_bytes()
        for _ in range(idle - len(crowd)):
            crowd.append(wire.connect(server.http_address))
            assert ask_live(crowd[-1]) == 200
        with_all = server.rss_bytes()
        during = traffic.run((4, 1.0)).between(1, 4)
        each_silent, each_kept = (with_silent - before) / silent, (with_all - with_silent) / (idle - silent)
        print(
            f"\n{len(crowd)} idle connections: {each_silent / KIB:.1f} KiB each if unused, "
            f"{each_kept / KIB:.1f} KiB each if used; p99 {during.p99_ms:.0f} ms, "
            f"{alone.p99_ms:.0f} ms without them"
        )
        assert during.attainment >= 0.99 and during.as_fast_as(alone, SLO_MS)
        assert each_silent <= SILENT_BYTES and each_kept <= KEPT_BYTES
        rejected_at_the_limit(server, crowd, idle + OTHERS)
        for connection in crowd:
            connection.close()


def rejected_at_the_limit(server: Tessera, crowd: list[socket.socket], limit: int) -> None:
    while len(crowd) < limit:
        crowd.append(wire.connect(server.http_address))
    with wire.connect(server.http_address) as late:
        status, headers, body = wire.answer(late)
        assert late.recv(1) == b"", "the rejected connection stays open"
    print(f"connection {limit + 1}: {status} {body.decode()}")
    assert status == 503 and headers["x-tessera-reason"] == "queue_full" and headers["retry-after"] == "1"
    assert "connections" in json.loads(body)["error"]
    # Open connections keep working, and closing one admits another.
    assert ask_live(crowd[0]) == 200
    crowd.pop().close()

    def another_is_admitted() -> bool:
        with wire.connect(server.http_address) as another:
            return ask_live(another) == 200

    until(another_is_admitted, "a connection is admitted after another one closed")
