#!/usr/bin/env python3
"""What a plan of families costs on recorded traffic: `tessera plan` with each policy, its plan simulated on the trace.

    tests/run choices [--trace NAME ...] [--attainment A] [--seconds S]      about 10 minutes

Each policy plans three families for the mean rate of the trace times a factor. The plan is fixed, and `tessera simulate` sends the trace to
it; the least factor with which enough requests are answered in time gives the cost of the policy. Plans choose from three types of device
at the prices below. The router chooses variants as the server does, so the quality is that of the simulation, not of the plan. `bound` is the
least cost of any plan for the mean rate. Traces are those of TESSERA_DATA, by path.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ["TESSERA_BIN"]
RESULTS = Path(__file__).with_name("results")
POLICIES = ["tessera", "temporal", "infaas", "mark", "proportional", "iris", "proteus"]
FACTORS = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.25, 2.5, 3.0, 4.0]
# Cost per hour, units, speed next to a T4. Prices of on-demand machines with one such GPU.
KINDS = {"t4": (0.35, 4, 1.0), "l4": (0.70, 6, 2.2), "v100": (2.48, 8, 2.8)}
DEVICES = 12
BATCHES = (1, 2, 4, 8, 16, 32)
# Families: objective in ms, share of the requests, least mean quality, and variants: ms of a batch, ms of a row on a T4, quality. ResNet50
# takes the times that Symphony fits for a GTX 1080Ti; the others take them times their operations per image over its 4.1 billion. Qualities are
# the top-1 accuracies on ImageNet that torchvision 0.12 lists, as are the operations.
VARIANTS = {
    "images": (60, 0.5, 0.745, {"resnet18": (0.44, 0.6976), "resnet50": (1.0, 0.7613), "resnet152": (2.81, 0.7831)}),
    "mobile": (30, 0.3, 0.70, {"shufflenet": (0.036, 0.6055), "mobilenet": (0.073, 0.7187)}),
    "dense": (120, 0.2, 0.75, {"densenet121": (0.70, 0.7443), "densenet161": (1.9, 0.7711)}),
}
FIXED_MS, ROW_MS = 5.072, 1.053
# Requests a second on that path, and the hour that begins with this second.
TRACES = {
    "twitter, 4:00": ("traces/no-licence/twitter/day00_per_second_counts.txt", 14_400),
    "twitter, 12:00": ("traces/no-licence/twitter/day00_per_second_counts.txt", 43_200),
    "twitter, 20:00": ("traces/no-licence/twitter/day00_per_second_counts.txt", 72_000),
    "azure-llm-conversation": ("traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 600),
}
# Requests a second of all families together, in the mean.
RATE = 12000.0


def profiles(slower: float = 1.0) -> str:
    """Profiles of all variants on all devices, which take `slower` times as long."""
    lines = []
    models = {name: times for _, _, _, variants in VARIANTS.values() for name, times in variants.items()}
    for (model, (size, _)), (kind, (_, units, speed)) in itertools.product(models.items(), KINDS.items()):
        head = {"version": 1, "model": model, "device": kind, "engine": "linear", "source": "synthesised", "units_total": units}
        lines.append({"profile": head})
        for batch, own in itertools.product(BATCHES, range(1, units + 1)):
            us = round(slower * 1e3 * size * (FIXED_MS + ROW_MS * batch * units / own) / speed)
            lines.append({"cell": {"batch": batch, "units": own, "p50_us": us, "p95_us": us, "p99_us": us, "count": 100}})
    return "".join(json.dumps(line) + "\n" for line in lines)


def devices(*, costs: bool) -> str:
    return "".join(
        f'[devices.{name}]\ncount = {DEVICES}\nmemory = "16GiB"\n' + (f"cost = {cost}\n" if costs else "") + "\n"
        for name, (cost, _, _) in KINDS.items()
    )


def families(rates: dict[str, str], *, quality_mean: bool, slower: float = 1.0) -> str:
    sections = ""
    for name, (slo, _, quality, variants) in VARIANTS.items():
        qualities = ", ".join(f"{variant} = {accuracy}" for variant, (_, accuracy) in variants.items())
        sections += f'[families.{name}]\nslo = "{slower * slo:g}ms"\nvariants = {{ {qualities} }}\n{rates[name]}\n'
        sections += f"quality_mean = {quality}\n\n" if quality_mean else "\n"
    return sections


def tessera(*arguments: str) -> dict:
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=600, check=False)
    if not done.stdout:
        sys.exit(f"tessera {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def planned(folder: Path, policy: str, factor: float) -> dict | None:
    """The plan of a policy for the mean rate times a factor."""
    rates = {name: f"rate = {RATE * share * factor}" for name, (_, share, _, _) in VARIANTS.items()}
    problem = folder / "problem.toml"
    problem.write_text('profiles = "profiles.jsonl"\ninterference = "none"\n\n' + devices(costs=True) + families(rates, quality_mean=True))
    answer = tessera("plan", str(problem), "--policy", policy, "--json")
    best = answer["families"]["policies"][0]
    return {**best, "plan": answer["policies"][0]["plan"], "bound": answer["families"]["cost_least"]} if best["sound"] else None


def counts_of(path: str) -> list[int]:
    """Requests of each second of a trace."""
    text = (Path(os.environ["TESSERA_DATA"]) / path).read_text()
    if path.endswith(".txt"):
        return [int(line) for line in text.split()]
    times = [datetime.fromisoformat(row[:26]) for row in text.splitlines()[1:]]
    counted = Counter(int((time - times[0]).total_seconds()) for time in times)
    return [counted[second] for second in range(max(counted) + 1)]


def counts(trace: str, seconds: int) -> list[int]:
    path, start = TRACES[trace]
    return counts_of(path)[start : start + seconds]


def simulated(folder: Path, trace: str, plan: dict, seconds: int) -> dict:
    every = counts(trace, seconds)
    (folder / "trace").write_text("\n".join(map(str, every)) + "\n")
    mean = sum(every) / len(every)
    rates = {
        name: f'arrivals = {{ process = "trace", format = "counts-per-second", file = "trace", rate_scale = {RATE * share / mean:.6f} }}'
        for name, (_, share, _, _) in VARIANTS.items()
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    models = "".join(f"[models.{model}]\n\n" for _, _, _, variants in VARIANTS.values() for model in variants)
    workload = folder / "workload.toml"
    workload.write_text(
        f'name = "choices"\nabout = "a plan of families on a trace"\nseed = 1\nduration = "{seconds}s"\nwarmup = "5s"\n\n'
        f'[partition]\nprofiles = "profiles.jsonl"\nplan = "plan.json"\n\n[lanes.noise]\ncv = 0.02\n\n'
        + devices(costs=False)
        + models
        + families(rates, quality_mean=False)
    )
    return tessera("simulate", str(workload), "--json")["policies"][0]["report"]


def least(folder: Path, trace: str, policy: str, attainment: float, seconds: int) -> dict:
    """The cheapest plan of a policy with which enough requests are answered in time."""
    found = {"policy": policy, "factor": None}
    for factor in FACTORS:
        plan = planned(folder, policy, factor)
        if plan is None:
            break
        run = simulated(folder, trace, plan["plan"], seconds)
        qualities = {family["family"]: family["quality"] for family in run["families"]}
        rates = {name: share for name, (_, share, _, _) in VARIANTS.items()}
        found = {
            "policy": policy,
            "factor": factor,
            "cost": plan["cost"],
            "attainment": run["attainment"],
            "quality": sum(rates[name] * quality for name, quality in qualities.items()) / sum(rates.values()),
            "quality_planned": plan["quality"],
            "devices": {one["kind"]: one["used"] for one in plan["devices"] if one["used"]},
        }
        if run["attainment"] >= attainment:
            return {**found, "enough": True}
    return {**found, "enough": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", action="append", choices=sorted(TRACES))
    parser.add_argument("--attainment", type=float, default=0.99)
    parser.add_argument("--seconds", type=int, default=300)
    arguments = parser.parse_args()
    if not os.environ.get("TESSERA_DATA"):
        sys.exit("error: TESSERA_DATA must name the folder with the traces")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "profiles.jsonl").write_text(profiles())
        bound = planned(folder, "tessera", 1.0)["bound"]
        for trace in arguments.trace or sorted(TRACES):
            print(f"\n{trace}, {arguments.seconds} s: least cost of any plan for the mean rate {bound:.2f}\n")
            print("| policy | planned for, times the mean rate | cost per hour | in time | quality | planned | devices |")
            print("|---|--:|--:|--:|--:|--:|---|")
            results[trace] = []
            for policy in POLICIES:
                one = least(folder, trace, policy, arguments.attainment, arguments.seconds)
                results[trace].append(one)
                if one["factor"] is None:
                    print(f"| {policy} | no plan | | | | | |", flush=True)
                    continue
                devices = ", ".join(f"{count} {kind}" for kind, count in one["devices"].items())
                missed = "" if one["enough"] else " (missed)"
                print(
                    f"| {policy} | {one['factor']:.1f} | {one['cost']:.2f} | {100 * one['attainment']:.2f} %{missed} "
                    f"| {one['quality']:.4f} | {one['quality_planned']:.4f} | {devices} |",
                    flush=True,
                )
    folder = RESULTS / date.today().isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"seconds": arguments.seconds, "attainment": arguments.attainment, "rate": RATE, "bound": bound}
    (folder / "choices.json").write_text(json.dumps({"settings": settings, "traces": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
