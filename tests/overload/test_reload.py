"""A new version every few seconds at 70 % load: no request fails, and latency does not rise."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx
import pytest

from fixtures import models
from fixtures.client import Client
from fixtures.tessera import Tessera
from overload.load import Running, Traffic

SLO_MS = 250
WIDTH, LAYERS = 512, 64
LOAD = 0.7
# A reload, then at least PAUSE seconds without one. Other load on the machine affects both.
SECONDS, PAUSE = 18, 2


class Operator:
    """Publishes and loads new versions with pauses, from now until `end`, in seconds."""

    def __init__(self, server: Tessera, repository: Path, chain: onnx.ModelProto, end: int) -> None:
        self.took: list[tuple[float, float]] = []
        self.failed: list[object] = []
        self._client = Client(server)
        self._repository = repository
        self._chain = chain
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(time.time(), end))
        self._thread.start()

    def _run(self, began: float, end: int) -> None:
        due, version = 2.0, 1
        while due < end:
            # Early in a second, so that it ends in the same second.
            if self._stop.wait(max(0.0, began + due + 0.2 - time.time())):
                return
            version += 1
            models.place(self._repository, "chain", self._chain, version=version)
            start = time.time()
            status, body, _ = self._client.post("/v2/repository/models/chain/load", {})
            self.took.append((start, time.time()))
            if status != 200:
                self.failed.append(body)
            due = math.floor(time.time() - began) + 1 + PAUSE

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


@contextmanager
def busy(cores: list[int]) -> Iterator[None]:
    """Programs on these cores that compute whenever nothing else runs there."""

    def idle_on(core: int) -> None:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    command = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(command, preexec_fn=partial(idle_on, core)) for core in cores]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_reloads_at_70_percent_load_do_not_slow_requests_down(tmp_path: Path, length: int) -> None:
    chain = models.matmul_chain(WIDTH, LAYERS)
    models.place(tmp_path, "chain", chain)
    # One lane on one core. The other cores are for the network, the client and the loads.
    config = f'[repository]\nengine = "ort"\n[lanes]\ncores = [[{min(os.sched_getaffinity(0))}]]\n'
    config += f'[models.chain]\nslo = "{SLO_MS}ms"\n'
    end = 2 + SECONDS * length
    with Tessera(tmp_path, config) as server:
        server.wait_ready()
        traffic = Traffic(f"http://{server.http_address}", "chain", 100.0, SLO_MS)
        # Cores that share execution units are slower next to each other, also during a load.
        with busy(sorted(os.sched_getaffinity(0))[1:]):
            rate = LOAD * traffic.throughput(concurrency=16, seconds=3)
        running: Running = Traffic(traffic.url, "chain", rate, SLO_MS).start((end, 1.0))
        operator = Operator(server, tmp_path, chain, end - 1)
        try:
            report = running.report()
        finally:
            operator.stop()
        ready = server.is_ready()
    total = report.total
    measured = report.between(2, end)
    spans = [(int(start - report.started), int(end - report.started)) for start, end in operator.took]
    touched = {second for first, last in spans for second in range(first, last + 1)}
    during = report.of_seconds([second for second in measured.seconds if second["t"] in touched])
    outside = report.of_seconds([second for second in measured.seconds if second["t"] not in touched])
    loads = statistics.median(end - start for start, end in operator.took) * 1e3
    print(
        f"\n{len(operator.took)} reloads of {loads:.0f} ms at {rate:.0f}/s: {total['answered']} of {total['offered']} "
        f"answered, rejected {total['refused']}; seconds with a reload ({len(during.seconds)}): p99 {during.p99_ms:.1f} "
        f"ms and {during.sum('refused')} rejected, without ({len(outside.seconds)}): {outside.p99_ms:.1f} ms and "
        f"{outside.sum('refused')}: {during.p99_ms / outside.p99_ms:.2f}x; pauses of the machine: {during.pause_ms:.1f} and {outside.pause_ms:.1f} ms"
    )
    assert ready and operator.took and not operator.failed, operator.failed
    assert not total["failed"], (total["failed"], report.document["said"])
    assert measured.attainment >= 0.99, total["refused"]
    # Loads run at background priority, so other load on the machine makes them longer.
    if not during.seconds or not outside.seconds:
        pytest.fail(f"machine too busy: every second contains a reload of {loads:.0f} ms; stop other programs")
    assert during.as_fast_as(outside, SLO_MS), (
        f"p99 {during.p99_ms:.1f} ms, without a reload {outside.p99_ms:.1f} ms; pauses of the machine: "
        f"{during.pause_ms:.1f} and {outside.pause_ms:.1f} ms"
    )
