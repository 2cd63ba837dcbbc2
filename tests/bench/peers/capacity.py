"""Capacity: the highest open-loop Poisson rate with 99 % of the answers within the SLO, found by `tessera load`.

Over gRPC with raw tensors, which is the one binary protocol that all three servers speak. All servers get the same
arrivals at the same rate, for the seed is the same.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.peers.models import Model
from bench.peers.record import Capacity
from bench.peers.servers import Server

# The client is on the servers' cores, which they fill. Where the system allows it, it goes first and at once, or it sends
# late and measures itself: lanes that compute for tens of milliseconds hold a core against any nice value.
AT_ONCE, FIRST = ["chrt", "-f", "1"], ["nice", "-n", "-10"]
# Exit code of `tessera load` when it ran and could not keep up with its own schedule.
NOT_KEPT_UP = 3
# Exit code when it was interrupted and wrote what it had.
INTERRUPTED = 130
INTERRUPTION_S_MAX = 30
ATTAINMENT = 0.99


@dataclass(frozen=True)
class Trials:
    """How a rate is tried."""

    seconds: float
    warmup_s: float
    # The search is cut short after so long.
    search_s_max: float


@functools.cache
def why_not() -> str:
    """Why capacity cannot be measured; empty if it can."""
    asked = subprocess.run([_binary(), "load", "--help"], capture_output=True, text=True, check=False, timeout=20)
    return "" if asked.returncode == 0 else "this tessera has no `load` command"


@functools.cache
def priority() -> list[str]:
    asked = subprocess.run([*AT_ONCE, "true"], capture_output=True, check=False, timeout=20)
    return AT_ONCE if asked.returncode == 0 else FIRST


def _binary() -> str:
    return os.environ["TESSERA_BIN"]


def find(
    server: Server, model: Model, slo_ms: float, first_rate: float, trials: Trials, folder: Path
) -> tuple[Capacity, str]:
    """The capacity, without a server's name yet, and what `tessera load` printed. `first_rate` is tried first."""
    if why_not():
        return Capacity("", slo_ms, missing=why_not()), why_not()
    samples = folder / f"{model.name}.jsonl"
    if not samples.exists():
        samples.write_text(model.samples())
    command = [_binary(), "load", "--url", f"grpc://{server.grpc}", "--model", model.name, "--find-capacity"]
    command += ["--slo", f"{slo_ms:g}ms", "--arrivals", "poisson", "--rate", f"{first_rate:.4g}", "--timeout", "10s"]
    command += ["--duration", _span(trials.seconds), "--warmup", _span(trials.warmup_s)]
    command += ["--samples", str(samples), "--json"]
    shown = shlex.join([*priority(), "tessera", *command[1:]]).replace(str(folder), "FOLDER")
    code, out, err = _run([*priority(), *command], trials.search_s_max)
    raw = f"$ {shown}\n{out}\n{err}"
    if code not in (0, NOT_KEPT_UP, INTERRUPTED) or not out:
        why = err.strip().splitlines()
        return Capacity("", slo_ms, missing=f"tessera load: {why[-1] if why else code}"), raw
    return read(json.loads(out), slo_ms), raw


def _run(command: list[str], seconds_max: float) -> tuple[int, str, str]:
    """Interrupted when the time is over, as a person would: it then says what it found until then."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            out, err = running.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            try:
                out, err = running.communicate(timeout=INTERRUPTION_S_MAX)
            except subprocess.TimeoutExpired:
                running.kill()
                out, err = running.communicate()
        except BaseException:
            running.kill()
            raise
    return running.returncode, out, err


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def read(report: dict, slo_ms: float) -> Capacity:
    """The figures in the JSON of `tessera load --find-capacity` (loadtest/src/report.rs)."""
    total, found = report["total"], report["capacity"]
    # A search that was interrupted has no result, but the run at the highest rate that held, or else the last run.
    rate = found["rate"] if found else total["offered_rate"] * (total["attainment"] >= ATTAINMENT)
    if not rate:
        reasons = ", ".join(total["failed"]) or "too many late or refused"
        return Capacity("", slo_ms, missing=f"no rate held ({reasons})")
    notes = ["search cut short"] * (not found or not found["settled"])
    notes += ["client late"] * (report["client"]["late_from"] is not None)
    return Capacity(
        server="",
        slo_ms=slo_ms,
        rate=rate,
        attainment=total["attainment"],
        p99_ms=total["latency"] and total["latency"]["p99_ms"],
        trials=len(found["trials"]) if found else 0,
        offered=total["offered"],
        note=", ".join(notes),
    )
