#!/usr/bin/env python3
"""Plans of families that follow the load on a live server with emulated devices of unequal speed and price, next to the simulation.

    tests/run choices-live [--seconds S] [--pair SCALER:VARIANTS ...]      about 4 minutes for each pair

Families, variants, devices and prices are those of `tests/run choices`. Devices take 20 times as long, for a twentieth of the requests, so
that two cores carry client and server: batches sleep as long as the profile says, and everything else is real. The trace is every
120th second of a day of Twitter, of which the first 60 s do not count. Cost is that of the devices with gpulets in force, as `GET /v2/partition`
says twice a second: those that only load are left out, unlike in `tests/run choices-scaling`. Traces are those of TESSERA_DATA, by path.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path

import choices
import choices_scaling
from fixtures.client import get
from fixtures.partition import view
from fixtures.synthetic import echo
from fixtures.tessera import Tessera

RESULTS = Path(__file__).with_name("results")
SLOWER = 20
WARMUP = 60
LOAD = "20ms"
CONNECTIONS = 8192
PAIRS = [
    "gpulet:tessera",
    "attainment:tessera",
    "gpulet:proteus",
    "infaas:infaas",
    "proportional:proportional",
    "iris:iris",
    "cocktail:mark",
]


class Costs(threading.Thread):
    """Adds up the cost of the devices that have gpulets, from a time on."""

    def __init__(self, server: Tessera, since: float) -> None:
        super().__init__()
        self.server, self.since, self.stopped = server, since, threading.Event()
        self.seen: list[tuple[float, float]] = []

    def run(self) -> None:
        prices = [cost for cost, _, _ in choices.KINDS.values() for _ in range(choices.DEVICES)]
        while not self.stopped.wait(0.5):
            used = {gpulet["device"] for gpulet in view(self.server)["gpulets"]}
            self.seen.append((time.monotonic(), sum(prices[int(device.removeprefix("gpu"))] for device in used)))

    def mean(self) -> float:
        counted = [cost for at, cost in self.seen if at >= self.since]
        return sum(counted) / len(counted)


def cost_in_force(gpulets: list[dict], since: float, until: float) -> float:
    """Mean cost of the devices that have gpulets in the table in force, as `GET /v2/partition` has them: without those that only load."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for gpulet in gpulets:
        spans.setdefault(gpulet["device"], []).append((gpulet["from_s"], gpulet["to_s"]))
    total = 0.0
    for device, own in spans.items():
        at = since
        for start, end in sorted(own):
            start, end = max(start, at), min(end, until)
            if end > start:
                total += (end - start) * choices.KINDS[device.rpartition("-")[0]][0]
                at = end
    return total / (until - since)


def repository(folder: Path) -> Path:
    """Synthetic models with the qualities of the variants."""
    models = folder / "models"
    for _, _, _, variants in choices.VARIANTS.values():
        for name, (_, accuracy) in variants.items():
            echo(1_000, max_batch=max(choices.BATCHES)).place(models, name)
            digest = hashlib.sha256((models / name / "1" / "model.toml").read_bytes()).hexdigest()
            (models / name / "quality.json").write_text(json.dumps({"quality": accuracy, "kind": "accuracy", "rows": 50_000, "digest": digest}))
    return models


def config(folder: Path, scaling: str, variants: str) -> str:
    devices = "".join(f'  {{ kind = "{name}", memory = "16GiB", count = {choices.DEVICES}, cost = {cost} }},\n' for name, (cost, _, _) in choices.KINDS.items())
    families = ""
    for name, (slo, _, quality, members) in choices.VARIANTS.items():
        families += f'[families.{name}]\nslo = "{SLOWER * slo}ms"\nvariants = {json.dumps(list(members))}\nquality_mean = {quality}\n\n'
    return (
        f'[devices]\nemulated = [\n{devices}]\n\n[partition]\nlive = true\nprofiles = ["{folder}/profiles.jsonl"]\n'
        f'scaling = "{scaling}"\nvariants = "{variants}"\n\n{families}'
    )


def answered(server: Tessera) -> dict[str, int]:
    stats = get(f"{server.base_url}/v2/models/stats")["model_stats"]
    return {one["name"]: one["inference_stats"]["success"]["count"] for one in stats}


def live(folder: Path, workload: Path, scaling: str, variants: str) -> dict:
    with Tessera(repository(folder), config(folder, scaling, variants)) as server:
        costs = Costs(server, time.monotonic() + WARMUP)
        costs.start()
        # Each request in flight has a connection. With fewer, those that wait for one are late before they are sent.
        command = [os.environ["TESSERA_BIN"], "load", str(workload), "--url", server.base_url, "--connections", str(CONNECTIONS), "--json"]
        sent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            sent.wait(WARMUP)
        except subprocess.TimeoutExpired:
            before = answered(server)
        else:
            sys.exit(f"tessera load: {sent.stderr.read()}")
        text, problem = sent.communicate(timeout=900)
        costs.stopped.set()
        costs.join()
        after, seen = answered(server), view(server)
    if not text:
        sys.exit(f"tessera load: {problem}")
    answer = json.loads(text)
    if answer["client"]["held"]:
        sys.exit(f"tessera load sent {answer['client']['held']} requests too late, because all connections were in use")
    report = answer["total"]
    quality = 0.0
    for _, share, _, members in choices.VARIANTS.values():
        counts = {name: after[name] - before[name] for name in members}
        quality += share * sum(members[name][1] * count for name, count in counts.items()) / sum(counts.values())
    return {"report": report, "quality": quality, "cost": costs.mean(), "changes": seen["epoch"], "problem": seen.get("problem")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--pair", action="append")
    arguments = parser.parse_args()
    if not os.environ.get("TESSERA_DATA"):
        sys.exit("error: TESSERA_DATA must name the folder with the traces")
    every = choices_scaling.counts("twitter, a day in 12 minutes", arguments.seconds)
    print("| scaler | variants | | in time | quality | cost per hour | plan changes |")
    print("|---|---|---|--:|--:|--:|--:|")
    results = []
    for pair in arguments.pair or PAIRS:
        scaling, variants = pair.split(":")
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            workload = choices_scaling.workload(folder, every, WARMUP, LOAD, SLOWER)
            run = choices.tessera("simulate", str(workload), "--scaling", scaling, "--variants", variants, "--json")
            report = run["policies"][0]["report"]
            simulated = choices_scaling.figures_of(report, len(every) - WARMUP)
            simulated["cost"] = cost_in_force(report["partition"]["gpulets"], WARMUP, len(every))
            measured = live(folder, workload, scaling, variants)
        attainment = measured["report"]["attainment"]
        print(
            f"| `{scaling}` | `{variants}` | simulated | {100 * simulated['attainment']:.2f} % | {simulated['quality']:.4f} "
            f"| {simulated['cost']:.2f} | {simulated['changes']} |"
        )
        print(
            f"| | | live | {100 * attainment:.2f} % | {measured['quality']:.4f} | {measured['cost']:.2f} | {measured['changes']} |", flush=True
        )
        results.append({"scaling": scaling, "variants": variants, "simulated": simulated, "live": measured})
    folder = RESULTS / date.today().isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"seconds": arguments.seconds, "slower": SLOWER, "rate": choices.RATE / SLOWER, "warmup": WARMUP, "load": LOAD}
    file = folder / "choices-live.json"
    # Pairs may be measured one at a time.
    before = json.loads(file.read_text()) if file.exists() else {"settings": None}
    if before["settings"] == settings:
        measured = {(one["scaling"], one["variants"]) for one in results}
        results = [one for one in before["pairs"] if (one["scaling"], one["variants"]) not in measured] + results
    file.write_text(json.dumps({"settings": settings, "pairs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
