"""Half of the clients leave while they wait: nobody runs their work, and nobody else is worse off for it."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2

from fixtures.client import get
from fixtures.tessera import Tessera
from overload import wire
from overload.load import Traffic
from overload.synthetic import Synthetic

# One at a time, and long enough that the order in which all is queued and left is certain.
SINGLE_MS = 400
SINGLE = Synthetic(alpha_us=SINGLE_MS * 1000, beta_us=0, max_batch=1)
# 190 a second on one lane.
BATCHED = Synthetic(alpha_us=20_000, beta_us=4_000, max_batch=16)
SLO_MS = 400
PAIRS = 6
# A client that leaves is out of the queue after at most so long.
GONE_MS = 50
# How long a leaver stays: less than a batch takes, so that it is queued when it leaves.
STAY_SECONDS = 0.02

Request = Callable[[], Callable[[], None]]
"""Sends a request without waiting for its answer; what it gives back leaves."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tessera]:
    SINGLE.place(tmp_path, "single")
    BATCHED.place(tmp_path, "batched")
    config = f'[lanes]\ncount = 1\n[models.single]\nslo = "60s"\n[models.batched]\nslo = "{SLO_MS}ms"\n'
    with Tessera(tmp_path, config, options=["--engine", "synthetic"]) as started:
        yield started.wait_ready()


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


def rest(server: Tessera, model: str) -> Request:
    request = wire.infer(model, 16)

    def send() -> Callable[[], None]:
        connection: socket.socket = wire.connect(server.http_address)
        connection.sendall(request)
        return connection.close

    return send


def rpc(channel: grpc.Channel, model: str) -> Request:
    infer = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=service_pb2.ModelInferRequest.SerializeToString,
        response_deserializer=service_pb2.ModelInferResponse.FromString,
    )
    message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[bytes(64)])
    message.inputs.add(name="x", datatype="FP32", shape=[1, 16])
    return lambda: infer.future(message, timeout=60).cancel


def answered(server: Tessera) -> int:
    return get(f"{server.base_url}/v2/models/single/stats")["model_stats"][0]["inference_count"]


def arrived(server: Tessera, sent: int) -> None:
    """Wait until the server has all that was sent."""
    end = time.monotonic() + 30
    while server.metric("tessera_requests_in_flight") + answered(server) < sent:
        assert time.monotonic() < end, f"fewer than {sent} requests arrived within 30 s"


def test_work_of_those_who_left_is_never_run(server: Tessera, protocol: str) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        request = rest(server, "single") if protocol == "http" else rpc(channel, "single")
        stayers = [wire.connect(server.http_address) for _ in range(PAIRS + 1)]
        # The first runs; behind it one that stays and one that leaves, in turns.
        stayers[0].sendall(wire.infer("single", 16))
        arrived(server, 1)
        leave = []
        for nth, stayer in enumerate(stayers[1:]):
            stayer.sendall(wire.infer("single", 16))
            leave.append(request())
            arrived(server, 1 + 2 * (nth + 1))
        assert answered(server) == 0, f"machine too slow: {2 * PAIRS} requests were not sent within {SINGLE_MS} ms"
        for one in leave:
            one()
        left = time.monotonic()
        while server.metric("tessera_requests_in_flight") > 1 + PAIRS:
            assert time.monotonic() < left + 10, "those who left are still there"
        gone_ms = (time.monotonic() - left) * 1e3
        answers = [wire.answer(stayer) for stayer in stayers]
        took = time.monotonic() - left
        for stayer in stayers:
            stayer.close()
    assert [status for status, _, _ in answers] == [200] * (PAIRS + 1)
    (stats,) = get(f"{server.base_url}/v2/models/single/stats")["model_stats"]
    ran = took * 1e3 / SINGLE_MS
    print(
        f"\n{protocol}: {PAIRS} of {2 * PAIRS} queued requests left, out of the queue {gone_ms:.0f} ms later; run: "
        f"{stats['execution_count']}, answered: {len(answers)}; the rest took as long as {ran:.1f} runs"
    )
    assert gone_ms <= GONE_MS
    assert stats["inference_count"] == stats["execution_count"] == PAIRS + 1
    # Time on the only lane tells what the statistics cannot: runs that nobody waited for.
    assert ran <= PAIRS + 2


class Leavers:
    """Sends requests at a rate, and leaves each a moment later."""

    def __init__(self, request: Request, rate: float) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(request, rate, random.Random(1)))
        self._thread.start()

    def _run(self, request: Request, rate: float, chance: random.Random) -> None:
        due, staying = time.monotonic(), []
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            while staying and staying[0][0] <= time.monotonic():
                staying.pop(0)[1]()
            staying.append((time.monotonic() + STAY_SECONDS, request()))
            self.sent += 1
            due += chance.expovariate(rate)
        for _, leave in staying:
            leave()

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(30)
        return self.sent


def test_goodput_of_those_who_stay_is_what_it_is_without_leavers(server: Tessera, protocol: str, length: int) -> None:
    address = server.grpc_address if protocol == "grpc" else server.http_address
    # With what the leavers send it is 1.4 times the capacity: were that run, those who stay would suffer.
    traffic = Traffic(f"{protocol}://{address}", "batched", 0.7 * BATCHED.capacity, SLO_MS)
    alone = traffic.run((4 * length, 1.0)).between(1, 4 * length)
    with grpc.insecure_channel(server.grpc_address) as channel:
        leavers = Leavers(rest(server, "batched") if protocol == "http" else rpc(channel, "batched"), traffic.rate)
        try:
            beside = traffic.run((4 * length, 1.0)).between(1, 4 * length)
        finally:
            sent = leavers.stop()
    print(
        f"\n{protocol}: in time {beside.attainment:.1%} beside {sent} requests whose clients left, "
        f"{alone.attainment:.1%} without; p99 {beside.p99_ms:.0f} and {alone.p99_ms:.0f} ms"
    )
    assert sent >= 0.8 * traffic.rate * 4 * length
    assert beside.attainment >= 0.99 * alone.attainment and alone.attainment >= 0.99
