"""Bodies exactly at the limit and just over it, in every encoding, while other requests are served."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2

from fixtures.synthetic import STEADY, Synthetic
from fixtures.tessera import Tessera
from overload import wire
from overload.load import Traffic

MIB = 2**20
LIMIT = 4 * MIB
BODIES = 32 * MIB
SLO_MS = 250
SENDERS = 4
# Between two rounds of one sender: the test is about many bodies at once, not about copying speed.
PAUSE = 0.25
# Memory that may remain after the last large body: allocators keep some.
GROWTH_MAX = 16 * MIB
WIDTH = 512 * 1024
LARGE = Synthetic(alpha_us=1_000, beta_us=0, max_batch=2, inputs=WIDTH, outputs=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tessera]:
    STEADY.place(tmp_path, "steady")
    LARGE.place(tmp_path, "large")
    config = f'[limits]\nbody = "{LIMIT // MIB}MiB"\nbodies = "{BODIES // MIB}MiB"\n'
    config += f'[models.steady]\nslo = "{SLO_MS}ms"\n[models.large]\nslo = "10s"\n'
    with Tessera(tmp_path, config, options=["--engine", "synthetic"]) as started:
        yield started.wait_ready()


def bodies() -> dict[str, tuple[bytes, int]]:
    """Requests by name, with the expected status."""
    chunk = b"%x\r\n%b\r\n" % (MIB, bytes(MIB))
    chunked = chunk * (LIMIT // MIB) + b"1\r\n \r\n0\r\n\r\n"
    return {
        "at the limit": (wire.infer("large", WIDTH, body_bytes=LIMIT), 200),
        "one byte over": (wire.infer("large", WIDTH, body_bytes=LIMIT + 1), 413),
        "over, in chunks": (wire.post("large", chunked, Transfer_Encoding="chunked"), 413),
        "over, compressed": (wire.post("large", gzip.compress(bytes(LIMIT + 1)), Content_Encoding="gzip"), 413),
        "announced only": (wire.post("large", b"", length=2**40), 413),
    }


class Senders:
    """Clients that send one body after another. Each uses a new connection, because a rejection may close it."""

    def __init__(self, server: Tessera, rounds: int | None = None) -> None:
        self._address = server.http_address
        self._bodies = bodies()
        self._stop = threading.Event()
        self._rounds = rounds
        self.seen: dict[str, Counter[int]] = {name: Counter() for name in self._bodies}
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        rounds = 0
        while rounds != self._rounds and not self._stop.wait(PAUSE if rounds else 0):
            rounds += 1
            for name, (payload, _) in self._bodies.items():
                with wire.connect(self._address) as connection:
                    # The server may reject a body by its announced length and stop reading.
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(payload)
                    self.seen[name][wire.answer(connection)[0]] += 1

    def leave(self) -> None:
        """Finish the round and check the status of every body."""
        if self._rounds is None:
            self._stop.set()
        for thread in self._threads:
            thread.join(60)
        for name, (_, status) in self._bodies.items():
            assert set(self.seen[name]) == {status} and self.seen[name][status] >= SENDERS, (name, self.seen[name])


def message(extra: int) -> service_pb2.ModelInferRequest:
    """A gRPC request of exactly LIMIT + extra bytes."""
    request = service_pb2.ModelInferRequest(model_name="large", raw_input_contents=[bytes(WIDTH * 4)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, WIDTH])
    while (missing := LIMIT + extra - request.ByteSize()) != 0:
        # An id is limited to 1 KiB, so a parameter holds the padding.
        request.parameters["padding"].string_param = "x" * (len(request.parameters["padding"].string_param) + missing)
    return request


def test_bodies_at_the_limit_are_served_and_larger_ones_rejected(server: Tessera, length: int) -> None:
    traffic = Traffic(f"http://{server.http_address}", "steady", STEADY.capacity / 2, SLO_MS)
    alone = traffic.run((4, 1.0)).between(1, 4)
    # The first requests allocate what allocators and threads keep.
    Senders(server, rounds=4).leave()
    idle = server.reset_peak()
    running = traffic.start((6 * length, 1.0))
    senders = Senders(server)
    try:
        during = running.report().between(1, 6 * length)
    finally:
        senders.leave()
    grew, peak = server.rss_bytes() - idle, server.peak_rss_bytes() - idle
    print(
        "\n" + "; ".join(f"{name}: {dict(counts)}" for name, counts in senders.seen.items()) + f"; memory at most "
        f"{peak / MIB:+.1f} MiB, afterwards {grew / MIB:+.1f}; p99 of other requests {during.p99_ms:.0f} ms, "
        f"{alone.p99_ms:.0f} ms without them"
    )
    assert peak <= BODIES + GROWTH_MAX and grew <= GROWTH_MAX
    assert during.attainment >= 0.99 and during.as_fast_as(alone, SLO_MS)


def test_messages_at_the_limit_are_served_and_larger_ones_rejected(server: Tessera) -> None:
    options = [("grpc.max_send_message_length", 2 * LIMIT)]
    with grpc.insecure_channel(server.grpc_address, options=options) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        assert infer(message(0), timeout=30).outputs[0].name == "y"
        with pytest.raises(grpc.RpcError) as over:
            infer(message(1), timeout=30)
        print(f"\none byte over: {over.value.code().name}, {over.value.details()}")
        assert over.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and str(LIMIT) in over.value.details()
