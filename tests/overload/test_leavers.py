"""Half of the clients disconnect while they wait: their requests are never run, and other clients are not affected."""

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
from fixtures.synthetic import Synthetic
from fixtures.tessera import Tessera
from fixtures.wait import until
from overload import wire
from overload.load import Traffic

# One request at a time, long enough to queue all others while the first one runs.
SINGLE_MS = 400
SINGLE = Synthetic(alpha_us=SINGLE_MS * 1000, beta_us=0, max_batch=1)
# 190 requests per second on one lane.
BATCHED = Synthetic(alpha_us=20_000, beta_us=4_000, max_batch=16)
SLO_MS = 400
PAIRS = 6
# Time until a leaver disconnects: shorter than a batch, so it is still queued.
STAY_SECONDS = 0.02

Request = Callable[[], Callable[[], None]]
"""Sends a request without waiting for its answer. Returns a function that disconnects."""


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


def until_arrived(server: Tessera, sent: int) -> None:
    arrived = lambda: server.metric("tessera_requests_in_flight") + answered(server)  # noqa: E731
    until(lambda: arrived() >= sent, f"{sent} requests arrive")


def test_requests_of_disconnected_clients_are_never_run(server: Tessera, protocol: str) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        request = rest(server, "single") if protocol == "http" else rpc(channel, "single")
        stayers = [wire.connect(server.http_address) for _ in range(PAIRS + 1)]
        # The first request runs. Behind it, requests of stayers and leavers alternate.
        stayers[0].sendall(wire.infer("single", 16))
        until_arrived(server, 1)
        leave = []
        for nth, stayer in enumerate(stayers[1:]):
            stayer.sendall(wire.infer("single", 16))
            leave.append(request())
            until_arrived(server, 1 + 2 * (nth + 1))
        assert answered(server) == 0, f"machine too slow: {2 * PAIRS} requests were not sent within {SINGLE_MS} ms"
        for one in leave:
            one()
        removed = until(lambda: server.metric("tessera_requests_in_flight") <= 1 + PAIRS, "leavers leave the queue")
        answers = [wire.answer(stayer) for stayer in stayers]
        for stayer in stayers:
            stayer.close()
    assert [status for status, _, _ in answers] == [200] * (PAIRS + 1)
    (stats,) = get(f"{server.base_url}/v2/models/single/stats")["model_stats"]
    busy_ms = server.metric("tessera_lane_busy_us_total") / 1e3
    print(
        f"\n{protocol}: {PAIRS} of {2 * PAIRS} clients disconnected, their requests left the queue after "
        f"{removed * 1e3:.0f} ms; {stats['execution_count']} runs in {busy_ms:.0f} ms of the lane"
    )
    assert stats["inference_count"] == stats["execution_count"] == PAIRS + 1
    # The lane's time also shows runs that the statistics leave out.
    assert busy_ms < (PAIRS + 1.5) * SINGLE_MS


class Leavers:
    """Sends requests at a rate, and disconnects shortly after each."""

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


def test_leavers_do_not_reduce_the_goodput_of_other_clients(server: Tessera, protocol: str, length: int) -> None:
    address = server.grpc_address if protocol == "grpc" else server.http_address
    # With the leavers' requests, the load is 1.4 times the capacity. Running them would delay the others.
    traffic = Traffic(f"{protocol}://{address}", "batched", 0.7 * BATCHED.capacity, SLO_MS)
    alone = traffic.run((4 * length, 1.0)).between(1, 4 * length)
    with grpc.insecure_channel(server.grpc_address) as channel:
        leavers = Leavers(rest(server, "batched") if protocol == "http" else rpc(channel, "batched"), traffic.rate)
        try:
            together = traffic.run((4 * length, 1.0)).between(1, 4 * length)
        finally:
            sent = leavers.stop()
    print(
        f"\n{protocol}: attainment {together.attainment:.1%} with {sent} requests of clients that disconnect, "
        f"{alone.attainment:.1%} without; p99 {together.p99_ms:.0f} and {alone.p99_ms:.0f} ms"
    )
    assert sent >= 0.8 * traffic.rate * 4 * length
    assert together.attainment >= 0.99 * alone.attainment and alone.attainment >= 0.99
