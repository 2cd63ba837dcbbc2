#!/usr/bin/env python3
"""What serving families costs on recorded traffic if plans follow the load: each scaler with each policy for variants.

    tests/run choices-scaling [--trace NAME ...] [--seconds S] [--load SPAN]      about 20 minutes

`tessera simulate` runs the control loop of the server in virtual time: it measures the load each second, the scaler decides the rates to plan
for, the policy for variants chooses variants and devices, and models load for `--load` before they serve. Families, variants, devices and prices
are those of `tests/run choices`. The first 120 s do not count. Cost is that of the devices that have gpulets, old ones included while models
load. Traces are those of TESSERA_DATA, by path.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import date
from pathlib import Path

import choices

RESULTS = Path(__file__).with_name("results")
WARMUP = 120
# Scaler, and policy for variants. Published ones with their own, and ours; then the policies of others with our scaler.
PAIRS = [
    ("attainment", "tessera"),
    ("gpulet", "tessera"),
    ("attainment", "proteus"),
    ("gpulet", "proteus"),
    ("cocktail", "mark"),
    ("proportional", "proportional"),
    ("iris", "iris"),
    ("infaas", "infaas"),
]
# Requests a second on that path, every how many seconds one counts, and over how many seconds the rate is a mean.
TRACES = {
    "twitter, a day in 12 minutes": ("traces/no-licence/twitter/day00_per_second_counts.txt", 120, 1),
    "azure-llm-conversation, by the second": ("traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 1, 1),
    "azure-llm-code, by the minute": ("traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv", 1, 60),
}


# Fixed plans of `iris` for the mean rate times these: IRIS compares itself with providing too much and too little.
PROVISIONED = (0.9, 1.8)


def counts(trace: str, seconds: int) -> list[int]:
    path, every, mean = TRACES[trace]
    kept = choices.counts_of(path)[::every][:seconds]
    minutes = [kept[at - at % mean :][:mean] for at in range(len(kept))]
    # Only ratios count; hundredths of a request keep means apart.
    return [round(100 * sum(minute) / len(minute)) for minute in minutes]


def workload(folder: Path, every: list[int], warmup: int, load: str, slower: float = 1.0) -> Path:
    """Plans that follow these counts of requests by second, on devices that take `slower` times as long for as many fewer requests."""
    (folder / "profiles.jsonl").write_text(choices.profiles(slower))
    (folder / "trace").write_text("\n".join(map(str, every)) + "\n")
    mean = sum(every) / len(every)
    rates = {
        name: f'arrivals = {{ process = "trace", format = "counts-per-second", file = "trace", rate_scale = {choices.RATE * share / slower / mean:.6f} }}'
        for name, (_, share, _, _) in choices.VARIANTS.items()
    }
    models = "".join(f"[models.{model}]\n\n" for _, _, _, variants in choices.VARIANTS.values() for model in variants)
    file = folder / "workload.toml"
    file.write_text(
        f'name = "choices"\nabout = "plans of families that follow a trace"\nseed = 1\nduration = "{len(every)}s"\nwarmup = "{warmup}s"\n\n'
        f'[partition]\nprofiles = "profiles.jsonl"\nvariants = "tessera"\nload = "{load}"\n\n[lanes.noise]\ncv = 0.02\n\n'
        + choices.devices(costs=True)
        + models
        + choices.families(rates, quality_mean=True, slower=slower)
    )
    return file


def figures_of(report: dict, seconds: int) -> dict:
    """What the report of a simulation says of families and devices in the last seconds."""
    shares = {name: share for name, (_, share, _, _) in choices.VARIANTS.items()}
    figures = report["partition"]
    kept = ("changes", "failures", "unplanned", "share_least", "devices_mean", "problem")
    return {
        "attainment": report["attainment"],
        "worst": min(model["attainment"] for model in report["models"] if model["name"] in shares),
        "quality": sum(shares[family["family"]] * family["quality"] for family in report["families"]),
        "cost": figures["cost_seconds"] / seconds,
        **{key: figures[key] for key in kept if key in figures},
    }


def row(one: dict) -> str:
    return (
        f"| `{one['scaling']}` | `{one['variants']}` | {100 * one['attainment']:.2f} % | {100 * one['worst']:.2f} % | {one['quality']:.4f} "
        f"| {one['cost']:.2f} | {one['changes']} | {one['failures']} | {one['unplanned']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", action="append", choices=sorted(TRACES))
    parser.add_argument("--seconds", type=int, default=720)
    parser.add_argument("--load", default="2s")
    arguments = parser.parse_args()
    if not os.environ.get("TESSERA_DATA"):
        sys.exit("error: TESSERA_DATA must name the folder with the traces")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for trace in arguments.trace or sorted(TRACES):
            every = counts(trace, arguments.seconds)
            file = workload(folder, every, WARMUP, arguments.load)
            print(f"\n{trace}, a model loads in {arguments.load}\n")
            print("| scaler | variants | in time | worst family | quality | cost per hour | plan changes | failed | no plan |")
            print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
            results[trace] = []
            for scaling, variants in PAIRS:
                run = choices.tessera("simulate", str(file), "--scaling", scaling, "--variants", variants, "--json")
                report = run["policies"][0]["report"]
                one = {"scaling": scaling, "variants": variants, **figures_of(report, len(every) - WARMUP)}
                results[trace].append(one)
                print(row(one), flush=True)
            for factor in PROVISIONED:
                plan = choices.planned(folder, "iris", factor)
                if plan is None:
                    sys.exit(f"error: `iris` has no plan for {factor:g} times the mean on {choices.DEVICES} devices of each type")
                (folder / "plan.json").write_text(json.dumps(plan["plan"]))
                fixed = folder / "fixed.toml"
                fixed.write_text(file.read_text().replace('variants = "tessera"', 'plan = "plan.json"'))
                report = choices.tessera("simulate", str(fixed), "--json")["policies"][0]["report"]
                one = {"scaling": f"fixed, {factor:g} times the mean", "variants": "iris", **figures_of(report, len(every) - WARMUP)}
                results[trace].append(one)
                print(row(one), flush=True)
    folder = RESULTS / date.today().isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"seconds": arguments.seconds, "load": arguments.load, "rate": choices.RATE, "warmup": WARMUP}
    (folder / "choices-scaling.json").write_text(json.dumps({"settings": settings, "traces": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
