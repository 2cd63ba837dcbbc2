#!/usr/bin/env python3
"""What changes of gpulets cost those that are served meanwhile, side by side; writes docs/partition/changes.md.

    tests/run changes [--rounds N]     real models, two cores, six minutes and two for each of four rounds

One server, one stream of requests at 70 % of its capacity. Stretches in which one plan stays take turns with stretches in
which plans that were drawn at random follow each other without a pause; both see the same plans equally long. Every
answer is held against the known one. Only a quiet machine tells anything: client and server share its cores.
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
PROBATION = "200ms"
# Of the capacity.
LOAD = 0.7
# Plans in a round, and seconds that each is left alone in its steady stretch.
PLANS, STEADY_S = 6, 10
# Seconds after a change, or before one, that belong to neither arm: latencies are kept by whole seconds.
MARGIN_S = 1
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


class Seconds:
    """Latencies, microseconds, of each second of a run."""

    def __init__(self, path: Path) -> None:
        self._of: list[tuple[float, HdrHistogram]] = []
        reader = HistogramLogReader(str(path), HdrHistogram(1, 60_000_000_000, 3))
        while (one := reader.get_next_interval_histogram()) is not None:
            # What has a tag is of the whole run.
            if not one.get_tag():
                self._of.append((one.get_start_time_stamp() / 1e3, one))

    def within(self, stretches: list[tuple[float, float]]) -> HdrHistogram:
        """Of the seconds that lie in one of the stretches, margins left out."""
        sum_of = HdrHistogram(1, 60_000_000_000, 3)
        for at, one in self._of:
            if any(begun + MARGIN_S <= at and at + 1 <= ended - MARGIN_S for begun, ended in stretches):
                sum_of.add(one)
        return sum_of


@dataclass
class Run:
    """What was done, and when (seconds since 1970)."""

    plans: list[dict]
    # One list for each plan.
    steady: list[list[tuple[float, float]]]
    # What each plan keeps up with, in multiples of the workload's rate.
    capacities: list[float] = field(default_factory=list)
    changing: list[tuple[float, float]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)


def drive(server: Tessera, run: Run, dice: random.Random, rounds: int) -> None:
    for number in range(rounds):
        for plan, stretches in zip(run.plans, run.steady):
            put(server, plan)
            begun = time.time()
            time.sleep(STEADY_S)
            stretches.append((begun, time.time()))
        begun, last = time.time(), run.plans[-1]
        while time.time() - begun < PLANS * STEADY_S:
            # Every plan equally often, never the same one twice.
            for plan in dice.sample(run.plans, len(run.plans)):
                if plan is last:
                    continue
                asked = time.time()
                put(server, plan)
                run.took_s.append(time.time() - asked)
                last = plan
        run.changing.append((begun, time.time()))
        say(f"round {number + 1} of {rounds}: {len(run.took_s)} changes so far")


def words(plan: dict) -> str:
    short = {"magika": "magika", "squeezenet_batched": "squeezenet", "minilm_int8": "MiniLM"}
    return ", ".join(
        f"{row['units']} core{'s' * (row['units'] > 1)}: {' '.join(short[one['workload']] for one in row['slots'])}" for row in plan["gpulets"]
    )


def milliseconds(histogram: HdrHistogram, percentile: float) -> float:
    return histogram.get_value_at_percentile(percentile) / 1e3


def page(run: Run, seconds: Seconds, report: dict, scale: float, before: float) -> str:
    steady = [seconds.within(stretches) for stretches in run.steady]
    all_steady = seconds.within([stretch for stretches in run.steady for stretch in stretches])
    changing = seconds.within(run.changing)
    total = report["total"]
    took = sorted(run.took_s)
    row = lambda name, most, of: f"| {name} | {most} | {of.get_total_count():,} | {milliseconds(of, 50):.1f} | {milliseconds(of, 99):.1f} | {milliseconds(of, 99.9):.1f} |"  # noqa: E731
    ratio = lambda percentile: milliseconds(changing, percentile) / milliseconds(all_steady, percentile)  # noqa: E731
    lines = [
        "<!-- Generated by `tests/run changes`: edit tests/bench/changes.py, not this page. -->",
        "# What a change costs those that are served",
        "",
        f"`tests/run changes`, {datetime.date.today()}, two cores that server and client share, load average before {before:.2f}. One server, "
        f"three real models, one open-loop stream of requests at {LOAD:.0%} of what the weakest of {len(run.plans)} plans keeps up with "
        f"(`{WORKLOAD}` times {scale * LOAD:.2f}; capacities found by `tessera load --find-capacity` just before). Stretches of {STEADY_S} s in which one of the "
        "plans stays take turns with stretches in which the same plans follow each other in random order, one change after another without a "
        f"pause (`POST /v2/partition/plan`, probation {PROBATION}). New sessions are loaded, warmed and checked on the two cores that serve.",
        "",
        f"- {len(run.took_s)} changes; from asking to the old gpulets' end {took[len(took) // 2]:.2f} s in the median, {took[-1]:.2f} s at most",
        f"- {total['offered']:,} requests: {total['answered']:,} answered, {total['failed'].get('wrong_answer', 0)} with a wrong answer, "
        f"{sum(total['failed'].values())} failed in all, {sum(total['refused'].values())} refused",
        f"- **99th percentile during changes over steady: {ratio(99):.2f}**; median {ratio(50):.2f}, 99.9th {ratio(99.9):.2f}",
        "",
        "| latency from when a request was due, ms | capacity, times | requests | median | 99th | 99.9th |",
        "| --- | --: | --: | --: | --: | --: |",
        row("steady, all plans", "", all_steady),
        row("changing", "", changing),
        *(row(f"steady: {words(plan)}", f"{most:.2f}", of) for plan, most, of in zip(run.plans, run.capacities, steady)),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="repository filled by models/zoo.py")
    parser.add_argument("--rounds", type=int, default=4, help="how often the two kinds of stretches take turns (default: 4)")
    parser.add_argument("--seed", type=int, default=1, help="of the plans and their order (default: 1)")
    arguments = parser.parse_args()
    zoo, before, dice = arguments.zoo.resolve(), os.getloadavg()[0], random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="tessera-changes-") as folder:
        repository = Path(folder) / "models"
        for model in MODELS:
            shutil.copytree(zoo / model, repository / model)
        settings = Path(folder) / "settings.toml"
        settings.write_text(CONFIG.split("[partition]")[0] + "[models" + CONFIG.split("[models", 1)[1])
        profile = profiled(repository, settings)
        with Tessera(repository, CONFIG.format(profiles=profile, probation=PROBATION)) as server:
            server.wait_ready()
            inputs = samples(server, Path(folder))
            plans: list[dict] = []
            while len(plans) < PLANS:
                plan = random_plan(dice)
                if plan not in plans:
                    plans.append(plan)
            run = Run(plans, [[] for _ in plans])
            for plan in plans:
                put(server, plan)
                run.capacities.append(capacity(server, inputs))
                say(f"{run.capacities[-1]:.2f} times the workload's rate is the most of: {words(plan)}")
            # A plan that is asked for more than it has would hide in its own queue what changes cost.
            scale = min(run.capacities)
            say(f"{arguments.rounds} rounds of {2 * PLANS * STEADY_S} s each, about")
            log = Path(folder) / "latencies.hlog"
            options = ["--rate-scale", str(scale * LOAD), "--duration", "3600s", "--hdr", str(log)]
            sender = subprocess.Popen(load(server, *inputs, *options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                time.sleep(5)
                drive(server, run, dice, arguments.rounds)
            finally:
                sender.send_signal(signal.SIGINT)
                out, said = sender.communicate(timeout=120)
            # Ended by us: that is what its exit code says too.
            if sender.returncode not in (0, 130):
                raise SystemExit(f"error: tessera load ended with {sender.returncode}: {said}")
        text = page(run, Seconds(log), json.loads(out), scale, before)
    PAGE.write_text(text)
    print(text, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
