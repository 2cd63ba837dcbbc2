#!/usr/bin/env python3
"""Measures the cost of plan changes to requests, and writes docs/partition/changes.md.

    tests/run changes [--rounds N]     real models, two cores, 7 minutes and 4 minutes for each of 4 rounds

Two servers are measured: one with the warm pool, and one that loads each session again. One stream of requests runs at
70 % of the capacity. Intervals in which one plan stays alternate with intervals in which random plans follow each other
without a pause. A plan has the same weight in both. Every answer is compared with a known one. Needs a machine without
other load: client and server share its cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench.partition import MODELS, ROOT, prepare, settings
from fixtures.client import Client, get
from fixtures.partition import gpulet, slot, view
from fixtures.tessera import Tessera
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

PAGE = ROOT / "docs" / "partition" / "changes.md"
WORKLOAD = Path("loadtest/partition/steady-mix.toml")
OBJECTIVES = dict.fromkeys(MODELS, "1s")
PARTITION = """
[partition]
live = true
bake_time = "{bake_ms:.0f}ms"
warm_pool = {warm_pool}
profiles = ["{profiles}"]
"""
BAKE_S = 0.2
SLICE_US = 30_000.0
# Size of the warm pool, by name of the arm.
ARMS = {"from the warm pool": 16, "loaded again": 0}
# Share of the capacity.
LOAD = 0.7
# Plans in a round, and seconds of each plan's unchanged interval.
PLANS, STEADY_S = 6, 10
# Seconds at both ends of an interval that do not count: latencies are recorded by whole seconds.
MARGIN_S = 1
# Seconds that are drawn together, because slow phases last several seconds; number of draws.
BLOCK_S, DRAWS = 8, 2000
SAMPLES = 3


def random_plan(dice: random.Random) -> dict:
    """A plan of one or two gpulets that uses both cores."""
    while True:
        order = dice.sample(list(MODELS), len(MODELS))
        if dice.random() < 0.2:
            return {"gpulets": [gpulet(0, 2, [slot(model, dice.choice((1, 2, 4)), SLICE_US) for model in order])]}
        cores = {model: dice.choice(((0,), (1,), (0, 1))) for model in order}
        if all(any(core in own for own in cores.values()) for core in (0, 1)):
            on = lambda core: [slot(model, dice.choice((1, 2, 4)), SLICE_US) for model in order if core in cores[model]]  # noqa: E731
            return {"gpulets": [gpulet(core, 1, on(core)) for core in (0, 1)]}


def samples(server: Tessera, folder: Path) -> list[str]:
    """Requests with the answers of the server before any change."""
    numbers, options, client = np.random.default_rng(1), [], Client(server)
    for model in MODELS:
        metadata = get(f"{server.base_url}/v2/models/{model}")
        lines = []
        for _ in range(SAMPLES):
            inputs = []
            for tensor in metadata["inputs"]:
                shape = [1, *(32 if extent < 0 else extent for extent in tensor["shape"][1:])]
                if tensor["datatype"] == "FP32":
                    data = numbers.random(shape, dtype=np.float32)
                else:
                    data = numbers.integers(0, 2 if "mask" in tensor["name"] or "type" in tensor["name"] else 250, shape)
                inputs.append({"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": data.ravel().tolist()})
            status, answer, _ = client.post(f"/v2/models/{model}/infer", {"inputs": inputs})
            if status != 200:
                raise SystemExit(f"error: {model}: {answer}")
            lines.append(json.dumps({"inputs": inputs, "expect": answer["outputs"]}))
        path = folder / f"{model}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        options += ["--samples", f"{model}={path}"]
    return options


def load(server: Tessera, *options: str) -> list[str]:
    """The command of a load generator with priority over the models."""
    command = ["chrt", "-f", "1", os.environ["TESSERA_BIN"], "load", str(WORKLOAD), "--url", server.base_url, "--json"]
    return [*command, *options]


def say(words: str) -> None:
    print(f"changes: {words}", file=sys.stderr)


def put(server: Tessera, plan: dict) -> dict:
    client = Client(server)
    # The response comes after the change.
    client.connection.timeout = 120
    status, answer, _ = client.post("/v2/partition/plan", plan)
    if status != 200:
        raise SystemExit(f"error: the plan was not put in force: {answer}\n{plan}")
    return answer


def capacity(server: Tessera, inputs: list[str]) -> float:
    """The capacity with an unchanged plan, as a multiple of the workload's rate."""
    command = load(server, *inputs, "--find-capacity", "--duration", "6s", "--warmup", "1s")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"error: tessera load ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["capacity"]["scale"]


@dataclass
class Run:
    """Intervals on one server, in seconds since the epoch."""

    plans: list[dict]
    # For each plan, its unchanged intervals.
    steady: list[list[tuple[float, float]]]
    changing: list[tuple[float, float]] = field(default_factory=list)
    # For each plan, seconds in force while plans changed.
    in_force_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    # Increase of the counters of `GET /v2/partition` while plans changed.
    taken: int = 0
    loaded: int = 0


def warm(server: Tessera) -> tuple[int, int]:
    pool = view(server)["warm"]
    return pool["taken"], pool["loaded"]


def drive(server: Tessera, run: Run, dice: random.Random, rounds: int) -> None:
    run.in_force_s = [0.0] * len(run.plans)
    for number in range(rounds):
        for plan, stretches in zip(run.plans, run.steady):
            put(server, plan)
            begun = time.time()
            time.sleep(STEADY_S)
            stretches.append((begun, time.time()))
        before = warm(server)
        begun, last = time.time(), len(run.plans) - 1
        since = begun
        while time.time() - begun < PLANS * STEADY_S:
            # Every plan equally often, never the same plan twice in succession.
            for at in dice.sample(range(len(run.plans)), len(run.plans)):
                if at == last:
                    continue
                asked = time.time()
                put(server, run.plans[at])
                run.took_s.append(time.time() - asked)
                switched = time.time() - BAKE_S
                run.in_force_s[last] += switched - since
                last, since = at, switched
        run.in_force_s[last] += time.time() - since
        run.changing.append((begun, time.time()))
        after = warm(server)
        run.taken, run.loaded = run.taken + after[0] - before[0], run.loaded + after[1] - before[1]
        say(f"round {number + 1} of {rounds}: {len(run.took_s)} changes so far")


class Latencies:
    """Latencies of a run in microseconds, by interval."""

    def __init__(self, path: Path, run: Run) -> None:
        seconds = []
        reader = HistogramLogReader(str(path), HdrHistogram(1, 60_000_000_000, 3))
        while (one := reader.get_next_interval_histogram()) is not None:
            # Tagged histograms cover the whole run.
            if not one.get_tag():
                counts = {item.value_iterated_to: item.count_at_value_iterated_to for item in one.get_recorded_iterator()}
                seconds.append((one.get_start_time_stamp() / 1e3, counts))
        self._values = sorted({value for _, counts in seconds for value in counts})
        column = {value: at for at, value in enumerate(self._values)}
        self._seconds = []
        for at, counts in seconds:
            row = np.zeros(len(column))
            for value, count in counts.items():
                row[column[value]] = count
            self._seconds.append((at, row))
        self.steady = [[block for stretch in stretches for block in self._blocks(*stretch)] for stretches in run.steady]
        self.changing = [block for stretch in run.changing for block in self._blocks(*stretch)]
        self._shares = np.array(run.in_force_s) / sum(run.in_force_s)

    def _blocks(self, begun: float, ended: float) -> list[np.ndarray]:
        rows = [row for at, row in self._seconds if begun + MARGIN_S <= at and at + 1 <= ended - MARGIN_S]
        return [np.sum(rows[at : at + BLOCK_S], axis=0) for at in range(0, len(rows), BLOCK_S)]

    def mixed(self, steady: list[list[np.ndarray]]) -> np.ndarray:
        """Latencies of unchanged plans, each weighted by its time in force while plans changed."""
        of_each = [np.sum(blocks, axis=0) for blocks in steady]
        return sum(share * counts / counts.sum() for share, counts in zip(self._shares, of_each))

    def milliseconds(self, counts: np.ndarray, percentile: float) -> float:
        upto = np.cumsum(counts)
        return self._values[min(int(np.searchsorted(upto, upto[-1] * percentile / 100)), len(upto) - 1)] / 1e3

    def ratio(self, percentile: float, steady: list[list[np.ndarray]], changing: list[np.ndarray]) -> float:
        of_changing = self.milliseconds(np.sum(changing, axis=0), percentile)
        return of_changing / self.milliseconds(self.mixed(steady), percentile)

    def interval(self, percentile: float) -> tuple[float, float]:
        """95 % interval of the ratio, by bootstrap over blocks."""
        numbers = np.random.default_rng(1)
        draw = lambda blocks: [blocks[at] for at in numbers.integers(0, len(blocks), len(blocks))]  # noqa: E731
        ratios = [self.ratio(percentile, [draw(blocks) for blocks in self.steady], draw(self.changing)) for _ in range(DRAWS)]
        return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


@dataclass
class Arm:
    """Results of one server."""

    name: str
    run: Run
    latencies: Latencies
    total: dict


def words(plan: dict) -> str:
    short = {"magika": "magika", "squeezenet_batched": "squeezenet", "minilm_int8": "MiniLM"}
    return ", ".join(
        f"{row['units']} core{'s' * (row['units'] > 1)}: {' '.join(short[one['workload']] for one in row['slots'])}" for row in plan["gpulets"]
    )


def page(arms: list[Arm], capacities: list[float], scale: float, before: float) -> str:
    plans = arms[0].run.plans
    offered = sum(arm.total["offered"] for arm in arms)
    answered = sum(arm.total["answered"] for arm in arms)
    failed = [arm.total["failed"] for arm in arms]
    wrong, lost = sum(one.get("wrong_answer", 0) for one in failed), sum(sum(one.values()) for one in failed)
    refused = sum(sum(arm.total["refused"].values()) for arm in arms)
    lines = [
        "<!-- Generated by `tests/run changes`: edit tests/bench/changes.py, not this page. -->",
        "# The cost of plan changes",
        "",
        f"Measured by `tests/run changes` on {datetime.date.today()}, on two cores that server and client share, with a load average of "
        f"{before:.2f} before the run.",
        "",
        f"- **Load.** Three real models get one open-loop stream of requests at {LOAD:.0%} of the capacity of the weakest of {len(plans)} plans "
        f"(`{WORKLOAD}` times {scale * LOAD:.2f}). `tessera load --find-capacity` measures the capacities first.",
        f"- **Intervals.** In intervals of {STEADY_S} s, one plan stays unchanged. They alternate with intervals in which the same plans follow each "
        f"other in random order without a pause (`POST /v2/partition/plan`, bake time {BAKE_S * 1e3:.0f} ms). Each plan has the same weight in both.",
        f"- **Servers.** The first one reuses sessions of closed gpulets (`partition.warm_pool = {ARMS['from the warm pool']}`, the default). The second "
        "one (`0`) loads, warms and verifies each session again on the two cores that serve. That is the cost of a plan with sessions that were never loaded before.",
        "",
        f"{offered:,} requests: {answered:,} answered, {wrong} wrong answers, {lost} failures, {refused} rejected.",
        "",
        "| sessions | " + " | ".join(arm.name for arm in arms) + " |",
        "| --- |" + " --: |" * len(arms),
        *(f"| {name} | {' | '.join(values)} |" for name, *values in zip(FIGURES, *(figures(arm) for arm in arms))),
        "",
        f"The time of a change runs from the request until the old gpulets are closed, including the bake time. The interval is a bootstrap over blocks of {BLOCK_S} s.",
        "",
        "| unchanged plan | capacity / workload | requests | median ms | p99 ms | p99.9 ms |",
        "| --- | --: | --: | --: | --: | --: |",
        *(plan_row(arms, at, most) for at, most in enumerate(capacities)),
        "",
    ]
    return "\n".join(lines)


FIGURES = (
    "changes",
    "time of a change, median s",
    "time of a change, maximum s",
    "sessions on gpulets",
    "of them loaded",
    "p99 of unchanged plans, ms",
    "p99 of changing plans, ms",
    "**p99, changing / unchanged**",
    "95 % interval",
    "median, changing / unchanged",
    "p99.9, changing / unchanged",
)


def figures(arm: Arm) -> list[str]:
    run, of = arm.run, arm.latencies
    took = sorted(run.took_s)
    mixed, changing = of.mixed(of.steady), np.sum(of.changing, axis=0)
    least, most = of.interval(99)
    ratio = lambda percentile: of.ratio(percentile, of.steady, of.changing)  # noqa: E731
    return [
        f"{len(took):,}",
        f"{took[len(took) // 2]:.2f}",
        f"{took[-1]:.2f}",
        f"{run.taken + run.loaded:,}",
        f"{run.loaded:,}",
        f"{of.milliseconds(mixed, 99):.1f}",
        f"{of.milliseconds(changing, 99):.1f}",
        f"**{ratio(99):.2f}**",
        f"{least:.2f} to {most:.2f}",
        f"{ratio(50):.2f}",
        f"{ratio(99.9):.2f}",
    ]


def plan_row(arms: list[Arm], at: int, most: float) -> str:
    """The unchanged intervals of one plan on the first server; those of the other server are equivalent."""
    of = arms[0].latencies
    counts = np.sum(of.steady[at], axis=0)
    ms = " | ".join(f"{of.milliseconds(counts, percentile):.1f}" for percentile in (50, 99, 99.9))
    return f"| {words(arms[0].run.plans[at])} | {most:.2f} | {int(counts.sum()):,} | {ms} |"


def measure(server: Tessera, name: str, plans: list[dict], inputs: list[str], rate: float, rounds: int, seed: int) -> Arm:
    """Both kinds of intervals on one server."""
    run = Run(plans, [[] for _ in plans])
    for plan in plans:
        put(server, plan)
    with tempfile.TemporaryDirectory(prefix="tessera-changes-") as folder:
        log = Path(folder) / "latencies.hlog"
        options = ["--rate-scale", str(rate), "--duration", "3600s", "--hdr", str(log)]
        sender = subprocess.Popen(load(server, *inputs, *options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(5)
            drive(server, run, random.Random(seed), rounds)
        finally:
            sender.send_signal(signal.SIGINT)
            out, said = sender.communicate(timeout=120)
        # 130: interrupted, as above.
        if sender.returncode not in (0, 130):
            raise SystemExit(f"error: tessera load ended with {sender.returncode}: {said}")
        return Arm(name, run, Latencies(log, run), json.loads(out)["total"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="repository filled by models/zoo.py")
    parser.add_argument("--rounds", type=int, default=4, help="how often the two kinds of intervals alternate (default: 4)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the plans and their order (default: 1)")
    arguments = parser.parse_args()
    zoo, before, dice = arguments.zoo.resolve(), os.getloadavg()[0], random.Random(arguments.seed)
    plans: list[dict] = []
    while len(plans) < PLANS:
        plan = random_plan(dice)
        if plan not in plans:
            plans.append(plan)
    capacities: list[float] = []
    arms: list[Arm] = []
    with tempfile.TemporaryDirectory(prefix="tessera-changes-") as folder:
        repository, profile = prepare(zoo, Path(folder), OBJECTIVES)
        say(f"capacities of {PLANS} plans, then twice {arguments.rounds} rounds of {2 * PLANS * STEADY_S} s each, about")
        for name, warm_pool in ARMS.items():
            partition = PARTITION.format(profiles=profile, bake_ms=BAKE_S * 1e3, warm_pool=warm_pool)
            with Tessera(repository, settings(OBJECTIVES, partition)) as server:
                server.wait_ready()
                inputs = samples(server, Path(folder))
                for plan in plans[len(capacities) :]:
                    put(server, plan)
                    capacities.append(capacity(server, inputs))
                    say(f"{capacities[-1]:.2f} times the workload's rate is the capacity of: {words(plan)}")
                # Above the capacity of a plan, its queue would hide the cost of changes.
                rate = min(capacities) * LOAD
                arms.append(measure(server, name, plans, inputs, rate, arguments.rounds, arguments.seed))
                say(f"sessions {name}: " + ", ".join(f"{what} {value}" for what, value in zip(FIGURES, figures(arms[-1]))))
    text = page(arms, capacities, min(capacities), before)
    PAGE.write_text(text)
    print(text, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
