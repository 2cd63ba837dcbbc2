#!/usr/bin/env python3
"""What changes of gpulets cost those that are served meanwhile, side by side; writes docs/partition/changes.md.

    tests/run changes [--rounds N]     real models, two cores, seven minutes and four for each of four rounds

A server that keeps the sessions of closed gpulets for the next plan, then one that loads each anew. One stream of requests
at 70 % of the capacity. Stretches in which one plan stays take turns with stretches in which plans that were drawn at
random follow each other without a pause. A plan counts among the steady ones as much as it was in force among the changing
ones. Every answer is held against the known one. Only a quiet machine tells anything: client and server share its cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from bench.partition import MODELS, profiled  # noqa: E402
from fixtures.client import Client, get  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

PAGE = ROOT / "docs" / "partition" / "changes.md"
WORKLOAD = Path("loadtest/partition/steady-mix.toml")
CONFIG = """
[lanes]
cores = [[0], [1]]

[partition]
live = true
probation = "{probation}"
warm_pool = {warm_pool}
profiles = ["{profiles}"]

[models.magika]
slo = "1s"
max_batch = 8
[models.squeezenet_batched]
slo = "1s"
max_batch = 4
free_batch = true
[models.minilm_int8]
slo = "1s"
max_batch = 8
"""
PROBATION_S = 0.2
# Sessions that are kept, by name of the arm.
ARMS = {"kept": 16, "loaded anew": 0}
# Of the capacity.
LOAD = 0.7
# Plans in a round, and seconds that each is left alone in its steady stretch.
PLANS, STEADY_S = 6, 10
# Seconds at both ends of a stretch that count nowhere: latencies are kept by whole seconds.
MARGIN_S = 1
# Seconds that are drawn together, for what is slow stays so for a while, and draws.
BLOCK_S, DRAWS = 8, 2000
SAMPLES = 3


def slot(model: str, batch: int) -> dict:
    return {"workload": model, "batch": batch, "budget_us": 30_000.0, "rate": 10.0}


def gpulet(first: int, units: int, slots: list[dict]) -> dict:
    duty = {"duty_us": 30_000.0 * len(slots)} if len(slots) > 1 else {}
    return {"device": "cpu0", "first_unit": first, "units": units, **duty, "slots": slots}


def random_plan(dice: random.Random) -> dict:
    """A plan of one or two gpulets that leaves no core without work."""
    while True:
        order = dice.sample(MODELS, len(MODELS))
        if dice.random() < 0.2:
            return {"gpulets": [gpulet(0, 2, [slot(model, dice.choice((1, 2, 4))) for model in order])]}
        homes = {model: dice.choice(((0,), (1,), (0, 1))) for model in order}
        if all(any(core in home for home in homes.values()) for core in (0, 1)):
            on = lambda core: [slot(model, dice.choice((1, 2, 4))) for model in order if core in homes[model]]  # noqa: E731
            return {"gpulets": [gpulet(core, 1, on(core)) for core in (0, 1)]}


def samples(server: Tessera, folder: Path) -> list[str]:
    """Requests with the answers that the server gives before anything changes."""
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
    """A generator that no model keeps from sending."""
    command = ["chrt", "-f", "1", os.environ["TESSERA_BIN"], "load", str(WORKLOAD), "--url", server.base_url, "--json"]
    return [*command, *options]


def say(words: str) -> None:
    print(f"changes: {words}", file=sys.stderr)


def put(server: Tessera, plan: dict) -> dict:
    client = Client(server)
    # Changes take a while, and the answer comes at their end.
    client.connection.timeout = 120
    status, answer, _ = client.post("/v2/partition/plan", plan)
    if status != 200:
        raise SystemExit(f"error: the plan was not put in force: {answer}\n{plan}")
    return answer


def capacity(server: Tessera, inputs: list[str]) -> float:
    """Multiple of the workload's rate that the server keeps up with while nothing changes."""
    command = load(server, *inputs, "--find-capacity", "--duration", "6s", "--warmup", "1s")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"error: tessera load ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["capacity"]["scale"]


@dataclass
class Run:
    """What was done on one server, and when (seconds since 1970)."""

    plans: list[dict]
    # One list for each plan.
    steady: list[list[tuple[float, float]]]
    changing: list[tuple[float, float]] = field(default_factory=list)
    # Seconds that each plan was in force among the changing ones.
    in_force_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    # Of `GET /v2/partition`, as they grew among the changing ones.
    taken: int = 0
    loaded: int = 0


def warm(server: Tessera) -> tuple[int, int]:
    kept = get(f"{server.base_url}/v2/partition")["warm"]
    return kept["taken"], kept["loaded"]


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
            # Every plan equally often, never the same one twice.
            for at in dice.sample(range(len(run.plans)), len(run.plans)):
                if at == last:
                    continue
                asked = time.time()
                put(server, run.plans[at])
                run.took_s.append(time.time() - asked)
                switched = time.time() - PROBATION_S
                run.in_force_s[last] += switched - since
                last, since = at, switched
        run.in_force_s[last] += time.time() - since
        run.changing.append((begun, time.time()))
        after = warm(server)
        run.taken, run.loaded = run.taken + after[0] - before[0], run.loaded + after[1] - before[1]
        say(f"round {number + 1} of {rounds}: {len(run.took_s)} changes so far")


class Latencies:
    """Latencies of a run, microseconds, by stretch."""

    def __init__(self, path: Path, run: Run) -> None:
        seconds = []
        reader = HistogramLogReader(str(path), HdrHistogram(1, 60_000_000_000, 3))
        while (one := reader.get_next_interval_histogram()) is not None:
            # What has a tag is of the whole run.
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
        """Of all plans, each as much as it was in force among the changing ones."""
        of_each = [np.sum(blocks, axis=0) for blocks in steady]
        return sum(share * counts / counts.sum() for share, counts in zip(self._shares, of_each))

    def milliseconds(self, counts: np.ndarray, percentile: float) -> float:
        upto = np.cumsum(counts)
        return self._values[min(int(np.searchsorted(upto, upto[-1] * percentile / 100)), len(upto) - 1)] / 1e3

    def ratio(self, percentile: float, steady: list[list[np.ndarray]], changing: list[np.ndarray]) -> float:
        of_changing = self.milliseconds(np.sum(changing, axis=0), percentile)
        return of_changing / self.milliseconds(self.mixed(steady), percentile)

    def interval(self, percentile: float) -> tuple[float, float]:
        """What 95 of 100 draws of as many blocks give, with replacement."""
        numbers = np.random.default_rng(1)
        draw = lambda blocks: [blocks[at] for at in numbers.integers(0, len(blocks), len(blocks))]  # noqa: E731
        ratios = [self.ratio(percentile, [draw(blocks) for blocks in self.steady], draw(self.changing)) for _ in range(DRAWS)]
        return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


@dataclass
class Arm:
    """What came out of one server."""

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
        "# What a change costs those that are served",
        "",
        f"`tests/run changes`, {datetime.date.today()}, two cores that server and client share, load average before {before:.2f}. "
        f"Three real models, one open-loop stream of requests at {LOAD:.0%} of what the weakest of {len(plans)} plans keeps up with "
        f"(`{WORKLOAD}` times {scale * LOAD:.2f}; capacities found by `tessera load --find-capacity` just before). Stretches of {STEADY_S} s in which one of the "
        "plans stays take turns with stretches in which the same plans follow each other in random order, one change after another without a "
        f"pause (`POST /v2/partition/plan`, probation {PROBATION_S * 1e3:.0f} ms). Every plan counts among the steady ones as much as it was in force among "
        f"the changing ones. A server that keeps sessions of closed gpulets (`partition.warm_pool = {ARMS['kept']}`, the default), then one that loads "
        "each anew (`0`), warms and checks it on the two cores that serve, which is what a plan costs whose sessions were never needed before.",
        "",
        f"{offered:,} requests: {answered:,} answered, {wrong} with a wrong answer, {lost} failed in all, {refused} refused.",
        "",
        "| sessions | " + " | ".join(arm.name for arm in arms) + " |",
        "| --- |" + " --: |" * len(arms),
        *(f"| {name} | {' | '.join(values)} |" for name, *values in zip(FIGURES, *(figures(arm) for arm in arms))),
        "",
        f"A change takes from asking to the old gpulets' end, the probation included. Draws are of blocks of {BLOCK_S} s, with replacement.",
        "",
        "| plan that stays | capacity, times | requests | median ms | 99th | 99.9th |",
        "| --- | --: | --: | --: | --: | --: |",
        *(plan_row(arms, at, most) for at, most in enumerate(capacities)),
        "",
    ]
    return "\n".join(lines)


FIGURES = (
    "changes",
    "seconds each, median",
    "at most",
    "sessions put on gpulets",
    "of them loaded",
    "99th percentile, plans that stay, ms",
    "plans that change, ms",
    "**over plans that stay**",
    "in 95 of 100 draws",
    "median over plans that stay",
    "99.9th percentile over plans that stay",
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
    """The steady stretches of one plan on the first server: the other one's are the same thing."""
    of = arms[0].latencies
    counts = np.sum(of.steady[at], axis=0)
    ms = " | ".join(f"{of.milliseconds(counts, percentile):.1f}" for percentile in (50, 99, 99.9))
    return f"| {words(arms[0].run.plans[at])} | {most:.2f} | {int(counts.sum()):,} | {ms} |"


def measure(server: Tessera, name: str, plans: list[dict], inputs: list[str], rate: float, rounds: int, seed: int) -> Arm:
    """Both kinds of stretches on one server."""
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
        # Ended by us: that is what its exit code says too.
        if sender.returncode not in (0, 130):
            raise SystemExit(f"error: tessera load ended with {sender.returncode}: {said}")
        return Arm(name, run, Latencies(log, run), json.loads(out)["total"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="repository filled by models/zoo.py")
    parser.add_argument("--rounds", type=int, default=4, help="how often the two kinds of stretches take turns (default: 4)")
    parser.add_argument("--seed", type=int, default=1, help="of the plans and their order (default: 1)")
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
        repository = Path(folder) / "models"
        for model in MODELS:
            shutil.copytree(zoo / model, repository / model)
        settings = Path(folder) / "settings.toml"
        settings.write_text(CONFIG.split("[partition]")[0] + "[models" + CONFIG.split("[models", 1)[1])
        profile = profiled(repository, settings)
        say(f"capacities of {PLANS} plans, then twice {arguments.rounds} rounds of {2 * PLANS * STEADY_S} s each, about")
        for name, warm_pool in ARMS.items():
            config = CONFIG.format(profiles=profile, probation=f"{PROBATION_S * 1e3:.0f}ms", warm_pool=warm_pool)
            with Tessera(repository, config) as server:
                server.wait_ready()
                inputs = samples(server, Path(folder))
                for plan in plans[len(capacities) :]:
                    put(server, plan)
                    capacities.append(capacity(server, inputs))
                    say(f"{capacities[-1]:.2f} times the workload's rate is the most of: {words(plan)}")
                # A plan that is asked for more than it has would hide in its own queue what changes cost.
                rate = min(capacities) * LOAD
                arms.append(measure(server, name, plans, inputs, rate, arguments.rounds, arguments.seed))
                say(f"sessions {name}: " + ", ".join(f"{what} {value}" for what, value in zip(FIGURES, figures(arms[-1]))))
    text = page(arms, capacities, min(capacities), before)
    PAGE.write_text(text)
    print(text, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
