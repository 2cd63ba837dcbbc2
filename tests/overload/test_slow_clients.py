"""Clients that send or read very slowly do not affect other clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from fixtures.synthetic import STEADY, Synthetic
from fixtures.tessera import Tessera
from fixtures.wait import until
from overload import slow, wire
from overload.load import Stretch, Traffic

MIB = 2**20
SLO_MS = 250
EACH = 24
TIMEOUT = 2.0
# A slow client may stay this many times as long as the timeout.
STAY_MAX = 1.5
ANSWER_BYTES = 8 * MIB
# HTTP sends the engine's tensors without a copy. This model returns its input, so that they are resident memory. gRPC
# copies them into a message.
ECHO = Synthetic(alpha_us=1_000, beta_us=0, max_batch=1, inputs=ANSWER_BYTES // 4, outputs=ANSWER_BYTES // 4)
ZEROS = Synthetic(alpha_us=1_000, beta_us=0, max_batch=1, outputs=ANSWER_BYTES // 4)
# Capacity for one request or response at a time.
BODY_BYTES = ANSWER_BYTES + MIB
BODIES_BYTES = BODY_BYTES
REFUSALS = "tessera_front_refusals_total"
HELD = "tessera_body_bytes"
# Buffers of connections, and memory of other requests.
MEMORY_MAX = 32 * MIB


@contextmanager
def started(repository: Path, limits: str = "") -> Iterator[Tessera]:
    STEADY.place(repository, "steady")
    ECHO.place(repository, "echo")
    ZEROS.place(repository, "zeros")
    config = f'[server]\ngrace = "{TIMEOUT:g}s"\n'
    config += f'[limits]\nheader_timeout = "{TIMEOUT:g}s"\nbody_timeout = "{TIMEOUT:g}s"\n'
    config += f'answer_timeout = "{TIMEOUT:g}s"\n{limits}'
    config += f'[models.steady]\nslo = "{SLO_MS}ms"\n[models.echo]\nslo = "10s"\n[models.zeros]\nslo = "10s"\n'
    with Tessera(repository, config, options=["--engine", "synthetic"]) as server:
        yield server.wait_ready()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tessera]:
    with started(tmp_path) as server:
        yield server


def message(inputs: int) -> bytes:
    request = service_pb2.ModelInferRequest(model_name="zeros", raw_input_contents=[bytes(4 * inputs)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, inputs])
    return request.SerializeToString()


@dataclass(frozen=True)
class Outcome:
    """How slow clients ended, and their effect on memory and on other clients."""

    ended: dict[str, list[slow.Ended | None]]
    alone: Stretch
    together: Stretch
    grew_bytes: int
    # Connections and streams closed because the client did not send or did not read, by the server's count.
    slow_bodies: int
    slow_readers: int
    # The longest delay of the slow clients themselves.
    lateness: float

    def assert_others_not_affected(self) -> None:
        assert self.together.attainment >= 0.99 and self.together.as_fast_as(self.alone, SLO_MS)

    def assert_closed(self) -> None:
        """That the server has closed all of them, and each in time."""
        for name, how in self.ended.items():
            open_still = sum(one is None for one in how)
            assert not open_still, f"{name}: the server has not closed {open_still} of {len(how)}"
            slowest = max(one.seconds for one in how) - self.lateness
            assert slowest <= STAY_MAX * TIMEOUT, f"{name}: closed after {slowest:.2f} s, the timeout is {TIMEOUT:g} s"


def run(
    server: Tessera, name: str, clients: dict[str, list[slow.Client]], seconds: int, first: slow.Client | None = None
) -> Outcome:
    """Send load for 4 s, then for `seconds` together with slow clients, which start once `first` has its response."""
    traffic = Traffic(f"http://{server.http_address}", "steady", STEADY.capacity / 2, SLO_MS)
    alone = traffic.run((4, 1.0)).between(1, 4)
    idle = server.reset_peak()
    crowds = []
    try:
        if first is not None:
            crowds.append(slow.Crowd({"first": [first]}))
            until(lambda: server.metric(HELD) >= ANSWER_BYTES, "the first slow client gets its response")
        crowds.append(slow.Crowd(clients))
        # In the first second, all slow clients start: large requests are read and large responses written.
        together = traffic.run((seconds, 1.0)).between(1, seconds)
    finally:
        ended = {kind: how for crowd in crowds for kind, how in crowd.leave().items()}
    grew = server.peak_rss_bytes() - idle
    lateness = max(crowd.lateness for crowd in crowds)
    print(
        f"\n{name}: other clients: attainment {together.attainment:.1%}, p99 {together.p99_ms:.0f} ms, {alone.p99_ms:.0f} ms before; "
        f"memory {grew / MIB:+.1f} MiB; the slow clients were late by up to {lateness * 1e3:.0f} ms"
    )
    for kind, how in ended.items():
        closed = sorted(one.seconds for one in how if one is not None)
        after = f" after {closed[0]:.2f} to {closed[-1]:.2f} s" if closed else ""
        print(f"  {kind}: closed {len(closed)} of {len(how)}{after}")
    slow_bodies, slow_readers = (int(server.metric(REFUSALS, reason=reason)) for reason in ("slow_body", "slow_reader"))
    return Outcome(ended, alone, together, grew, slow_bodies, slow_readers, lateness)


def test_slow_senders_are_closed_and_do_not_affect_others(server: Tessera) -> None:
    whole = wire.infer("steady", 16)
    head = whole.index(b"\r\n\r\n")
    long_body = wire.post("zeros", b"x" * 1000, length=MIB)
    rest, rpc = server.http_address, server.grpc_address
    clients = {
        "headers": [slow.sender(rest, whole[: head - 20])] * EACH,
        "nothing": [slow.sender(rest, b"")] * EACH,
        "body": [slow.sender(rest, long_body)] * EACH,
        "gRPC message": [slow.grpc_call(rpc, message(100_000), 1000)] * EACH,
    }
    found = run(server, "slow senders", clients, 5)
    found.assert_others_not_affected()
    found.assert_closed()
    assert found.grew_bytes <= MEMORY_MAX
    assert all(b" 408 " in one.said and b"x-tessera-reason: slow_body" in one.said for one in found.ended["body"])
    assert all(b"x-tessera-reason: slow_body" in one.said for one in found.ended["gRPC message"])
    assert found.slow_bodies == 2 * EACH


def run_slow_readers(server: Tessera, first: slow.Client | None = None) -> Outcome:
    clients = {
        "answer": [slow.reader(server.http_address, wire.infer("echo", ECHO.inputs))] * EACH,
        "gRPC answer": [slow.grpc_call(server.grpc_address, message(ZEROS.inputs), MIB)] * EACH,
    }
    return run(server, "slow readers", clients, 6, first)


def test_slow_readers_are_closed_and_do_not_affect_others(server: Tessera) -> None:
    found = run_slow_readers(server)
    found.assert_others_not_affected()
    found.assert_closed()
    assert all(b" 200 " in one.said for one in found.ended["answer"])
    assert found.slow_readers == 2 * EACH


def test_slow_readers_hold_no_more_memory_than_configured(tmp_path: Path) -> None:
    with started(tmp_path, f'body = "{BODY_BYTES}B"\nbodies = "{BODIES_BYTES}B"\n') as server:
        # Many at once may all be rejected: each reserves memory as its body arrives, and none may get enough.
        found = run_slow_readers(server, slow.reader(server.http_address, wire.infer("echo", ECHO.inputs)))
    found.assert_others_not_affected()
    found.assert_closed()
    assert found.grew_bytes <= MEMORY_MAX
    said = [one.said for how in found.ended.values() for one in how if one is not None]
    assert any(b"x-tessera-reason: queue_full" in one for one in said) and found.slow_readers > 0
