"""Half of the clients disconnect while they wait: their requests are never run, and other clients are not affected."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

# Holds the lane while all other requests arrive and half of the clients disconnect.
LONG_MS = 2000
LONG = Synthetic(alpha_us=LONG_MS * 1000, max_batch=1)
# One request at a time.
SINGLE_MS = 100
SINGLE = Synthetic(alpha_us=SINGLE_MS * 1000, max_batch=1)
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
    LONG.place(tmp_path, "long")
    SINGLE.place(tmp_path, "single")
    BATCHED.place(tmp_path, "batched")
    config = f'[lanes]\ncount = 1\n[models.long]\nslo = "60s"\n[models.single]\nslo = "60s"\nqueue_limit = {2 * PAIRS}\n'
    config += f'[models.batched]\nslo = "{SLO_MS}ms"\n'
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


def until_in_flight(server: Tessera, count: int) -> None:
    until(lambda: server.metric("tessera_requests_in_flight") == count, f"{count} requests arrive")


def found_full(server: Tessera) -> float:
    """Requests rejected because the queue was full."""
    return server.metric("tessera_refusals_total", reason="queue_full")


@dataclass(frozen=True)
class Executed:
    """Statistics of a model: requests answered, batches run for them, and their time in the engine."""

    requests: int
    batches: int
    engine_ms: float


def executed(server: Tessera, model: str) -> Executed:
    (stats,) = get(f"{server.base_url}/v2/models/{model}/stats")["model_stats"]
    engine_ms = stats["inference_stats"]["compute_infer"]["ns"] / 1e6
    return Executed(stats["inference_count"], stats["execution_count"], engine_ms)


def test_requests_of_disconnected_clients_leave_the_queue_and_are_never_run(server: Tessera, protocol: str) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        request = rest(server, "single") if protocol == "http" else rpc(channel, "single")
        first, *others = [wire.connect(server.http_address) for _ in range(1 + 2 * PAIRS)]
        stayers, newcomers = others[:PAIRS], others[PAIRS:]
        first.sendall(wire.infer("long", 16))
        until_in_flight(server, 1)
        # Behind it, requests of stayers and leavers alternate. They fill the queue.
        leave = []
        for nth, stayer in enumerate(stayers):
            stayer.sendall(wire.infer("single", 16))
            leave.append(request())
            until_in_flight(server, 1 + 2 * (nth + 1))
        for one in leave:
            one()
        until_in_flight(server, 1 + PAIRS)
        # Newcomers take the leavers' places. A request that finds the queue full is rejected.
        for newcomer in newcomers:
            newcomer.sendall(wire.infer("single", 16))
        arrived = lambda: server.metric("tessera_requests_in_flight") + found_full(server)  # noqa: E731
        until(lambda: arrived() == 1 + 2 * PAIRS, "newcomers arrive")
        assert executed(server, "long").requests == 0, (
            f"not within {LONG_MS} ms: the server removes the requests of disconnected clients, or the machine is too slow"
        )
        answers = [wire.answer(client) for client in (first, *others)]
        for client in (first, *others):
            client.close()
    assert [status for status, _, _ in answers] == [200] * (1 + 2 * PAIRS), "disconnected clients kept places in the queue"
    ran, busy_ms = executed(server, "single"), server.metric("tessera_lane_busy_us_total") / 1e3
    print(f"\n{protocol}: {PAIRS} of {3 * PAIRS} clients disconnected; {ran.batches} runs in {busy_ms:.0f} ms of the lane")
    assert (ran.requests, ran.batches) == (2 * PAIRS, 2 * PAIRS)
    # The lane's time also contains runs that the statistics leave out.
    assert busy_ms - ran.engine_ms - executed(server, "long").engine_ms < SINGLE_MS / 2


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
