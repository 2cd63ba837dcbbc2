#!/usr/bin/env python3
"""Capacity and CPU time of the OCR example, as a pipeline and as a chain of its models in the client.

    tests/run ocr [--rounds N] [--seconds S] [--slack F] [--loads A,B,...] [--render]      about 20 minutes

One server has the pipeline and the models. Both clients send the same images at the same times (Poisson arrivals, open loop), and
each request has the same objective. They run one after the other at each rate, in alternating order. Client and server share the cores.
Rates and the objective follow the speed of the machine, from requests one at a time: a load of 1 is the rate at which the chain over HTTP takes all cores, and
the objective is `--slack` times the mean latency of the chain over HTTP. `--render` prints the tables of the last run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import numpy as np
from bench.ocr_clients import CLIENTS, Client, Job
from bench.peers import process
from bench.peers.others import Watch
from fixtures.images_with_text import fetch
from fixtures.tessera import Tessera

RESULTS = Path(__file__).with_name("results")
# 1 to 17 lines.
IMAGES = [
    "baiona.png",
    "baiona_color.jpg",
    "baiona_gray.png",
    "baiona_colormapped.png",
    "baiona_corner.png",
    "baiona_upside_down.png",
    "logo-square.png",
    "linn_upside_down.png",
    "rendered_receipt.png",
    "rendered_upside_down.png",
]
ATTAINMENT = 0.9
# Clients whose capacity is measured: of the chains, the one that takes less CPU time.
RIVALS = ("pipeline", "chain, HTTP")
# Of the images, for the CPU time.
PASSES = 1


def schedule(rate: float, seconds: float, seed: int) -> list[Job]:
    generator = np.random.default_rng(seed)
    gaps = generator.exponential(1 / rate, int(rate * seconds * 2) + 20)
    times = np.cumsum(gaps)
    return [Job(float(at), int(generator.integers(len(IMAGES)))) for at in times[times < seconds]]


def checked(answers: list, images: list[int], wanted: list) -> list[float]:
    """Latencies of the answers, whose texts are right."""
    for image, (_, texts, _) in zip(images, answers):
        assert texts is None or texts == wanted[image], (IMAGES[image], texts, wanted[image])
    return [latency for latency, _, _ in answers if latency is not None]


def cpu(kind: str, client: Client, server: Tessera, wanted: list) -> dict:
    """CPU time of the images, one after the other. No request is late."""
    images = list(range(len(IMAGES))) * PASSES
    before = process.cpu_seconds(server.pid)
    answers, client_cpu = client.one_by_one(images, 600.0)
    server_cpu = process.cpu_seconds(server.pid) - before
    latencies = checked(answers, images, wanted)
    assert len(latencies) == len(images), answers
    return {
        "client": kind,
        "requests": len(images),
        "server_cpu_s": server_cpu,
        "client_cpu_s": client_cpu,
        # All are due at the start, so the latency of the last one is the time of all.
        "latency_s": max(latencies) / len(latencies),
    }


def trial(kind: str, client: Client, jobs: list[Job], objective: float, wanted: list) -> dict:
    """One schedule."""
    watch = Watch()
    answers, _ = client.run(jobs, objective)
    others = watch.use().share
    latencies = checked(answers, [job.image for job in jobs], wanted)
    return {
        "client": kind,
        "requests": len(jobs),
        "in_time": sum(latency <= objective for latency in latencies),
        "others_share": others,
        "errors": Counter(reason for _, _, reason in answers if reason),
    }


def attainment(trials: list[dict]) -> list[tuple[float, float]]:
    """Share of requests in time at each load, of all rounds together."""
    loads = sorted({one["load"] for one in trials})
    at = [[one for one in trials if one["load"] == load] for load in loads]
    return [(load, sum(one["in_time"] for one in some) / sum(one["requests"] for one in some)) for load, some in zip(loads, at)]


def capacity(trials: list[dict]) -> float:
    """Load at which the attainment falls below ATTAINMENT, between two measured loads; 0 if it is below at the lowest."""
    last = None
    for load, share in attainment(trials):
        if share < ATTAINMENT:
            if last is None:
                return 0.0
            before, above = last
            return before + (load - before) * (above - ATTAINMENT) / (above - share)
        last = load, share
    return last[0]


def measure(ocr: Path, rounds: int, seconds: float, slack: float, loads: list[float]) -> dict:
    folder = fetch(ocr / "images")
    images = [(folder / name).read_bytes() for name in IMAGES]
    trials, costs, full_rate, objective = [], [], 0.0, 0.0
    with Tessera(ocr / "models", (ocr / "tessera.toml").read_text()) as server:
        server.wait_ready(120)
        address = {"grpc": server.grpc_address, "http": server.http_address}
        with ExitStack() as stack:
            clients = {kind: stack.enter_context(Client(kind, address, ocr / "models", images)) for kind in CLIENTS}
            # Each image twice, one after the other, so that each lane has seen each shape.
            warmup = [Job(float(at), at // 2) for at in range(2 * len(images))]
            wanted, *others = ([texts for _, texts, _ in clients[kind].run(warmup, 60.0)[0]][::2] for kind in clients)
            assert all(wanted) and all(other == wanted for other in others), (wanted, others)
            for number in range(rounds):
                order = list(clients)[:: 1 if number % 2 == 0 else -1]
                for kind in order:
                    costs.append(keep({"round": number, **cpu(kind, clients[kind], server, wanted)}))
                if number == 0:
                    chain = next(one for one in costs if one["client"] == "chain, HTTP")
                    cores = len(os.sched_getaffinity(0))
                    full_rate = cores * chain["requests"] / (chain["server_cpu_s"] + chain["client_cpu_s"])
                    objective = slack * chain["latency_s"]
                    keep({"full_rate": full_rate, "objective_s": objective})
                for load in loads:
                    jobs = schedule(load * full_rate, seconds, 1_000 * number + int(load * 100))
                    for kind in (kind for kind in order if kind in RIVALS):
                        trials.append(keep({"round": number, "load": load, **trial(kind, clients[kind], jobs, objective, wanted)}))
    fixed = {"objective_s": objective, "full_rate": full_rate, "attainment": ATTAINMENT, "seconds": seconds, "images": IMAGES}
    return fixed | {"cpu": costs, "trials": trials}


def keep(one: dict) -> dict:
    print(json.dumps(one), file=sys.stderr, flush=True)
    return one


def row(cells: list) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def render(result: dict) -> str:
    trials, costs = result["trials"], result["cpu"]
    chains = [kind for kind in CLIENTS if kind != "pipeline"]
    lines = [row(["CPU time of a request, ms", *CLIENTS, *(f"ratio to {kind}, each round" for kind in chains)]), row(["---"] * 6)]
    parts = {"server and client": ("server_cpu_s", "client_cpu_s"), "server": ("server_cpu_s",), "client": ("client_cpu_s",)}
    for name, keys in parts.items():
        own = {kind: [1e3 * sum(one[key] for key in keys) / one["requests"] for one in costs if one["client"] == kind] for kind in CLIENTS}
        ratios = [", ".join(f"{ours / theirs:.2f}" for ours, theirs in zip(own["pipeline"], own[kind])) for kind in chains]
        lines.append(row([name, *(f"{statistics.median(own[kind]):.0f}" for kind in CLIENTS), *ratios]))
    if not trials:
        return "\n".join(lines)

    own = {kind: [one for one in trials if one["client"] == kind] for kind in RIVALS}
    lines += [
        "",
        f"Objective {result['objective_s']:.2f} s; a load of 1 is {result['full_rate']:.2f} requests/s.",
        "",
        row(["load", "requests of each", *(f"{kind}: in time, %" for kind in RIVALS), "cores of other programs"]),
        row(["---"] * 5),
    ]
    shares = {kind: dict(attainment(own[kind])) for kind in RIVALS}
    for load in sorted({one["load"] for one in trials}):
        here = [one for one in trials if one["load"] == load]
        requests = sum(one["requests"] for one in here) // len(RIVALS)
        others = statistics.fmean(one["others_share"] for one in here)
        lines.append(row([f"{load:g}", requests, *(f"{100 * shares[kind][load]:.1f}" for kind in RIVALS), f"{others:.2f}"]))
    lines += ["", row([f"load with {100 * ATTAINMENT:.0f} % in time", *RIVALS, "ratio"]), row(["---"] * 4)]
    rounds = sorted({one["round"] for one in trials})
    groups = [("all rounds", rounds), *((f"round {number + 1}", [number]) for number in rounds if len(rounds) > 1)]
    for name, group in groups:
        pipeline, chain = (capacity([one for one in own[kind] if one["round"] in group]) for kind in RIVALS)
        lines.append(row([name, f"{pipeline:.2f}", f"{chain:.2f}", f"{pipeline / chain:.2f}" if chain else "-"]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ocr", type=Path, default=Path(os.environ.get("TESSERA_OCR", "ocr")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--slack", type=float, default=3.0)
    parser.add_argument("--loads", default="0.4,0.5,0.6,0.7,0.8")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / str(date.today()) / "ocr.json")
    arguments = parser.parse_args()
    if arguments.render:
        last = max(RESULTS.glob("*/ocr.json"), default=None)
        if last is None:
            parser.error(f"--render: no file {RESULTS}/DATE/ocr.json: run without --render first")
        print(render(json.loads(last.read_text())))
        return
    result = measure(arguments.ocr, arguments.rounds, arguments.seconds, arguments.slack, [float(load) for load in arguments.loads.split(",") if load])
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(render(result))


if __name__ == "__main__":
    main()
