"""One model through every server: the engine alone, closed loop under each client, then capacity at two objectives."""

from __future__ import annotations

import datetime
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from oracle.child import CannotRun
from tritonclient import grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from bench.peers import capacity, clients, limit, others, process, servers
from bench.peers.analyzer import Analyzer
from bench.peers.models import Model, single_threaded
from bench.peers.record import Capacity, ClosedLoop, Outcome, Results
from bench.peers.servers import Candidate, Server

SERVER_CORE, CLIENT_CORE = 0, 1
# Multiples of the time that one row takes alone.
SLO_MULTIPLES = (5, 10)
# Objective of a server that is measured closed loop: so wide that nothing is refused.
LOOSE_SLO_MS = 1000.0
ENGINE_ALONE = """
import sys
def pss():
    return next(int(l.split()[1]) for l in open('/proc/self/smaps_rollup') if l.startswith('Pss:')) / 1024
import numpy
before = pss()
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 4
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])
row = dict(numpy.load(sys.argv[2]))
for _ in range(3):
    session.run(None, row)
print(pss() - before)
"""


class Clock:
    """Says where a run stands, and when its time is over."""

    def __init__(self, minutes: float) -> None:
        self.started = time.monotonic()
        self.minutes = minutes

    def is_over(self) -> bool:
        return time.monotonic() - self.started > self.minutes * 60

    def say(self, text: str) -> None:
        passed = int(time.monotonic() - self.started)
        print(f"[{passed // 60:2d}:{passed % 60:02d}] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Scale:
    """How long and how much."""

    seconds: int
    # Every hand-tuned setting, or only the ones that are measured closed loop.
    all_settings: bool
    trials: capacity.Trials
    # Of Triton's settings, how many of the best at the first objective are tried at the second.
    finalists: int
    minutes: float


SCALES = {
    "quick": Scale(1, False, capacity.Trials(2.0, 0.5, 30.0), 1, 10.0),
    "full": Scale(3, True, capacity.Trials(3.0, 0.5, 90.0), 1, 20.0),
    "thorough": Scale(8, True, capacity.Trials(10.0, 1.0, 200.0), 99, 75.0),
}


# Client and requests in flight.
LOADS = (("wrk", 1), ("wrk", 8), ("h2load", 8))
TINY_LOADS = tuple((client, concurrency) for client in ("wrk", "h2load") for concurrency in (1, 8, 32))


@dataclass(frozen=True)
class Bench:
    """What every experiment needs."""

    places: servers.Places
    analyzer: Analyzer | None
    scale: Scale
    results: Results
    clock: Clock
    command: str
    folder: Path


def engine_alone(model: Model, folder: Path) -> tuple[float, float]:
    """Milliseconds that ONNX Runtime takes for one row in Python, and MiB that it adds to a bare process with numpy.

    The tenth percentile: the objectives hang on it, and must not move with what else the machine does.
    """
    session, times = single_threaded(model.path), []
    for i in range(50):
        row = model.rows[i % len(model.rows)]
        started = time.perf_counter()
        session.run(None, row)
        times.append(time.perf_counter() - started)
    row_file = folder / f"{model.name}.npz"
    np.savez(row_file, **model.rows[0])
    command = [sys.executable, "-c", ENGINE_ALONE, str(model.path), str(row_file)]
    mib = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return statistics.quantiles(times, n=10)[0] * 1e3, float(mib)


def objectives(engine_ms: float) -> list[float]:
    """About 5 and 10 times the single time, rounded to two figures."""
    return [float(f"{engine_ms * multiple:.2g}") for multiple in SLO_MULTIPLES]


def check_answers(server: Server, model: Model) -> None:
    """A server that answers something else is not compared."""
    with grpc.InferenceServerClient(server.grpc) as client:
        for row, answer in zip(model.rows, model.answers):
            inputs = []
            for name, array in row.items():
                tensor = grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
                tensor.set_data_from_numpy(array)
                inputs.append(tensor)
            got = client.infer(model.name, inputs, client_timeout=60)
            for name, expected in answer.items():
                if not np.allclose(got.as_numpy(name).reshape(expected.shape), expected, rtol=1e-3, atol=1e-4):
                    raise RuntimeError(f"output `{name}` is not what onnxruntime alone answers")


def run(bench: Bench, model: Model) -> Outcome:
    tiny = model.name == "identity"
    engine_ms, engine_mib = engine_alone(model, bench.folder)
    slos = [] if tiny else objectives(engine_ms)
    candidates = servers.FOR_IDENTITY if tiny else servers.FOR_MODELS
    candidates = servers.available(candidates, bench.places)
    if not bench.scale.all_settings:
        candidates = [candidate for candidate in candidates if candidate.closed_loop]
    outcome = Outcome(
        model=model.name,
        about=model.about,
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=bench.command,
        seconds=bench.scale.seconds,
        others=0.0,
        engine_ms=engine_ms,
        engine_mib=engine_mib,
        slos_ms=slos,
        families={candidate.name: candidate.family for candidate in candidates},
        settings={candidate.name: candidate.setting for candidate in candidates},
    )
    bench.clock.say(f"{model.name}: {engine_ms:.3g} ms a row alone")
    for candidate in candidates:
        guarded(bench, outcome, candidate, lambda c=candidate: first_pass(bench, outcome, model, c, tiny))
    if not tiny:
        for slo in slos[1:]:
            for candidate in finalists(candidates, outcome, bench.scale.finalists):
                guarded(
                    bench, outcome, candidate, lambda c=candidate, s=slo: capacity_pass(bench, outcome, model, c, s)
                )
    return outcome


def guarded(bench: Bench, outcome: Outcome, candidate: Candidate, work: Callable[[], None]) -> None:
    """A server that fails loses its own figures only, and the document says why; of ours it says that it lost."""
    try:
        work()
    except (
        CannotRun,
        InferenceServerException,
        RuntimeError,
        OSError,
        ValueError,
        subprocess.SubprocessError,
    ) as reason:
        why = (str(reason) or repr(reason)).strip()
        bench.clock.say(f"{outcome.model}: {candidate.name}: {why}")
        bench.results.keep(outcome.model, f"{candidate.name} failed", why)
        outcome.closed_loop.append(ClosedLoop(candidate.name, "-", "-", 0, missing=why.splitlines()[0]))


def first_pass(bench: Bench, outcome: Outcome, model: Model, candidate: Candidate, tiny: bool) -> None:
    """Closed loop, with an objective that refuses nothing; then capacity, by the same server if it has none."""
    pin, away = (["taskset", "-c", str(core)] if tiny else [] for core in (SERVER_CORE, CLIENT_CORE))
    slo = LOOSE_SLO_MS if tiny else outcome.slos_ms[0]
    if candidate.closed_loop:
        with candidate.start(bench.places, model, LOOSE_SLO_MS, pin) as server:
            outcome.idle_mib[candidate.name] = process.memory_mib(server.pid)
            check_answers(server, model)
            closed_loop(bench, outcome, model, candidate, server, away)
            outcome.loaded_mib[candidate.name] = process.memory_mib(server.pid)
            if not tiny and candidate.family != "tessera":
                at_slo(bench, outcome, model, candidate, server, slo)
                return
    if not tiny:
        capacity_pass(bench, outcome, model, candidate, slo)


def capacity_pass(bench: Bench, outcome: Outcome, model: Model, candidate: Candidate, slo: float) -> None:
    """Answers are checked by `tessera load` here: ours may refuse even a lone request whose objective is tight."""
    with candidate.start(bench.places, model, slo, []) as server:
        # Warm, as those that were measured closed loop are.
        clients.wrk(server, model, candidate.json_only, 4, 1, [])
        at_slo(bench, outcome, model, candidate, server, slo)


def finalists(candidates: list[Candidate], outcome: Outcome, of_triton: int) -> list[Candidate]:
    """For the second objective: ours, and what was best of Triton and of MLServer at the first one."""
    best = {row.server: row.rate for row in outcome.capacity if not row.missing}
    chosen = []
    for family, count in (("tessera", 1), ("triton", of_triton), ("mlserver", 1)):
        own = [candidate for candidate in candidates if candidate.family == family]
        # One that held no rate at the first objective may hold one at a wider.
        chosen += sorted(own, key=lambda candidate: -best.get(candidate.name, 0.0))[:count]
    return chosen


def closed_loop(
    bench: Bench, outcome: Outcome, model: Model, candidate: Candidate, server: Server, away: list[str]
) -> None:
    seconds = bench.scale.seconds

    def add(client: str, protocol: str, concurrency: int, measure: Callable[[], clients.Load]) -> None:
        label = f"{candidate.name} {client} {protocol} {concurrency}"
        bench.clock.say(f"{model.name}: {label}")
        try:
            load, share = others.alone(measure, bench.clock.say)
            outcome.others = max(outcome.others, share)
        except (RuntimeError, subprocess.TimeoutExpired) as reason:
            why = str(reason).strip()
            bench.results.keep(model.name, label, why)
            row = ClosedLoop(candidate.name, client, protocol, concurrency, missing=why.splitlines()[-1])
        else:
            bench.results.keep(model.name, label, load.raw)
            row = ClosedLoop.of(candidate.name, client, protocol, concurrency, load)
        outcome.closed_loop.append(row)

    http = "HTTP, JSON" if candidate.json_only else "HTTP, binary"
    # Warm.
    clients.wrk(server, model, candidate.json_only, 8, 1, away)
    for client, in_flight in TINY_LOADS if model.name == "identity" else LOADS:
        if client == "wrk":
            drive = functools.partial(clients.wrk, server, model, candidate.json_only, in_flight, seconds, away)
        else:
            drive = functools.partial(clients.h2load, server, model, in_flight, seconds, away)
        add(client, http if client == "wrk" else "gRPC", in_flight, drive)
    # perf_analyzer asks for Triton's model configuration, which MLServer does not have.
    if bench.analyzer is not None and candidate.family != "mlserver":
        analyzer = bench.analyzer
        add("perf_analyzer", "gRPC", 8, lambda: analyzer.closed_loop(server, model, 8, away))


def at_slo(bench: Bench, outcome: Outcome, model: Model, candidate: Candidate, server: Server, slo_ms: float) -> None:
    label = f"{candidate.name} capacity {slo_ms:g} ms"
    if bench.clock.is_over():
        found = Capacity("", slo_ms, missing=f"left out: the {bench.clock.minutes:g} minutes were over")
    else:
        bench.clock.say(f"{model.name}: {label}")
        guess = first_rate(outcome, candidate)
        before = limit.batch_times(server.http, model.name) if candidate.family == "tessera" else {}
        search = functools.partial(capacity.find, server, model, slo_ms, guess, bench.scale.trials, bench.folder)
        (found, raw), share = others.alone(search, bench.clock.say)
        outcome.others = max(outcome.others, share)
        bench.results.keep(model.name, label, raw)
        if candidate.family == "tessera" and not found.missing:
            points = limit.profile(before, limit.batch_times(server.http, model.name))
            bench.results.keep(model.name, f"limit {slo_ms:g} ms", limit.workload(points, slo_ms, found.rate))
            found.limit = limit.find(points, slo_ms, found.rate, bench.folder)
        bench.clock.say(f"{model.name}: {label}: {found.missing or f'{found.rate:.1f}/s after {found.trials} trials'}")
    found.server = candidate.name
    outcome.capacity.append(found)


def first_rate(outcome: Outcome, candidate: Candidate) -> float:
    """Where to start the search: what the same server, or its next of kin, held before; else most of what the engine
    can do on all cores."""
    held = [row for row in outcome.capacity if not row.missing]
    for kin in (
        [row for row in held if row.server == candidate.name],
        [row for row in held if outcome.families[row.server] == candidate.family],
    ):
        if kin:
            # The best, not the last: one search that noise spoiled must not pull the next ones down.
            return max(row.rate for row in kin)
    share = 0.3 if candidate.family == "mlserver" else 0.8
    return share * servers.LANES * 1000 / outcome.engine_ms
