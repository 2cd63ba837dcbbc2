"""The capacity that queueing allows: the scheduler in virtual time with the batch times that the live server had, without
network, client or anything else in its way."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from bench.peers.servers import LANES

# A batch size that ran more seldom has no reliable mean.
COUNT_MIN = 5
# Rows of a batch -> number of batches, and nanoseconds in the engine.
BatchTimes = dict[int, tuple[int, int]]


def batch_times(http: str, model: str) -> BatchTimes:
    """Of all batches so far, by the statistics extension."""
    with urllib.request.urlopen(f"http://{http}/v2/models/{model}/stats", timeout=10) as answer:
        statistics = json.load(answer)["model_stats"][0]["batch_stats"]
    return {row["batch_size"]: (row["compute_infer"]["count"], row["compute_infer"]["ns"]) for row in statistics}


def profile(before: BatchTimes, after: BatchTimes) -> list[tuple[int, float]]:
    """Microseconds of a batch by rows, of the batches between two readings. A larger batch takes no less time."""
    points: list[tuple[int, float]] = []
    for rows in sorted(after):
        count, nanos = (late - early for late, early in zip(after[rows], before.get(rows, (0, 0))))
        if count >= COUNT_MIN:
            points.append((rows, max(nanos / count / 1e3, points[-1][1] if points else 0.0)))
    return points


def workload(points: Iterable[tuple[int, float]], slo_ms: float, rate: float) -> str:
    rows = ", ".join(f'[{rows}, "{micros:.1f}us"]' for rows, micros in points)
    return (
        f'name = "limit"\nseed = 1\nduration = "120s"\nwarmup = "5s"\nlanes = {{ count = {LANES} }}\n'
        f'[models.one]\nslo = "{slo_ms:g}ms"\nrate = {rate:.4g}\nprofile = {{ points = [{rows}] }}\n'
    )


def find(points: list[tuple[int, float]], slo_ms: float, rate: float, folder: Path) -> float:
    """Requests a second at which 99 % are in time."""
    if not points:
        raise ValueError("the server ran too few batches to know their times")
    file = folder / "limit.toml"
    file.write_text(workload(points, slo_ms, rate))
    command = [os.environ["TESSERA_BIN"], "simulate", str(file), "--find-capacity", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise ValueError(f"tessera simulate: {done.stderr.strip()}")
    return capacity_of(json.loads(done.stdout))


def capacity_of(report: dict) -> float:
    (policy,) = report["policies"]
    return float(policy["capacity"]["rate"])
