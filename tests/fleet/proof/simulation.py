"""What `tessera simulate` says about the same faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fleet.proof.models import WORKLOAD, read

# Virtual time of the fault, and the resolution of the time to recover.
AT_MS, STEP_MS, WINDOW_MS = 5_000, 100, 1_000


@dataclass(frozen=True)
class Predicted:
    """Figures of some models from the fault on."""

    sent: int
    in_time: int
    recovered_s: float
    # Of all models: answered late, refused or dropped with a reason, and lost inside a node.
    late: int
    refused: dict[str, int]
    lost: int


def _run(fault: str, from_ms: int, to_ms: int) -> dict:
    text = WORKLOAD.read_text()
    text = re.sub(r"faults = \[.*?^\]", f"faults = [{fault}]", text, flags=re.S | re.M)
    text = re.sub(r'^duration = .*$', f'duration = "{to_ms}ms"', text, flags=re.M)
    text = re.sub(r'^warmup = .*$', f'warmup = "{from_ms}ms"', text, flags=re.M)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proof.toml"
        file.write_text(text)
        command = [os.environ["TESSERA_BIN"], "simulate", str(file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"tessera simulate: {done.stderr}")
    (figures,) = json.loads(done.stdout)["fleet"]
    return figures


def _of(figures: dict, names: list[str], models: set[str]) -> tuple[int, int]:
    """Requests for these models, and those that were answered in time."""
    counts = [counts for name, counts in zip(names, figures["models"], strict=True) if name in models]
    return sum(offered for offered, _ in counts), sum(good for _, good in counts)


def predict(part: str, lasts_s: float, watched_s: float, models: set[str]) -> Predicted:
    """`part`: what fails, as `node = 0`. Figures of these models from the fault until `watched_s` after it."""
    names = [model.name for model in read()]
    fault = f'{{ at = "{AT_MS}ms", until = "{AT_MS + max(round(lasts_s * 1e3), 1)}ms", {part} }}'
    whole = _run(fault, AT_MS, AT_MS + round(watched_s * 1e3))
    begin = at = AT_MS
    while at < begin + WINDOW_MS and at < AT_MS + watched_s * 1e3:
        offered, good = _of(_run(fault, at, at + STEP_MS), names, models)
        at += STEP_MS
        if good < offered:
            begin = at
    counts = _of(whole, names, models)
    return Predicted(*counts, (begin - AT_MS) / 1e3, whole["late"], whole["refused"], whole["lost_inside"])
