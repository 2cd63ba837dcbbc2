"""Runs of `tessera load` against a server under test, and what they found."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import pytest

# Exit codes of `tessera load`: it ran; it ran, and could not keep up in some seconds.
RAN = (0, 3)
# Time that a run may take beyond what it was told to send for.
SPARE_SECONDS = 60


@dataclass(frozen=True)
class Traffic:
    """Requests of one row for one model."""

    url: str
    model: str
    rate: float
    slo_ms: float

    def start(self, *stages: tuple[int, float]) -> Running:
        """Begin to send, for (seconds, multiple of the rate) each; nothing is left out as warm-up."""
        plan = [f"--stage={seconds}s:{factor}" for seconds, factor in stages]
        return self._start(sum(seconds for seconds, _ in stages), *plan)

    def run(self, *stages: tuple[int, float]) -> Report:
        """Send, and wait for the end."""
        return self.start(*stages).report()

    def capacity(self, seconds: int) -> float:
        """The highest rate with 99 % of the answers in time, by trials that long."""
        trials = self._start(40 * seconds, f"--duration={seconds}s", "--find-capacity")
        return trials.report().document["capacity"]["rate"]

    def throughput(self, concurrency: int, seconds: int) -> float:
        """Answers a second when so many requests are always under way."""
        run = self._start(seconds, f"--duration={seconds}s", f"--concurrency={concurrency}").report()
        return run.total["answered"] / run.document["measured_s"]

    def _start(self, seconds: int, *how: str) -> Running:
        command = [os.environ["TESSERA_BIN"], "load", "--json", "--url", self.url, "--model", self.model]
        command += ["--rate", str(self.rate), "--slo", f"{self.slo_ms}ms", "--warmup", "0s", *how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return Running(process, seconds)


class Running:
    """A run that goes on."""

    def __init__(self, process: subprocess.Popen[str], seconds: int) -> None:
        self._process = process
        self._seconds = seconds

    def report(self) -> Report:
        """Wait for the end."""
        try:
            text, said = self._process.communicate(timeout=self._seconds + SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        assert self._process.returncode in RAN, f"tessera load ended with {self._process.returncode}: {said[-2000:]}"
        return Report(json.loads(text))


@dataclass(frozen=True)
class Report:
    """What `tessera load --json` wrote."""

    document: dict

    @property
    def started(self) -> float:
        """When the first request was due, seconds since the epoch."""
        return datetime.fromisoformat(self.document["started"]).timestamp()

    @property
    def total(self) -> dict:
        return self.document["total"]

    @property
    def stages(self) -> list[dict]:
        return [stage["figures"] for stage in self.document["stages"]]

    def between(self, start: float, end: float) -> Stretch:
        """The whole seconds from `start` to `end` in which the client kept up; at least half of them must be such.

        The client runs on the server's own cores: a second in which it could not send on time says how busy the
        machine was with other things, and nothing about the server.
        """
        whole = [second for second in self.document["seconds"] if start <= second["t"] and second["t"] + 1 <= end]
        kept = [second for second in whole if second["kept_up"]]
        if not kept or 2 * len(kept) < len(whole):
            pytest.fail(
                f"machine too slow: between second {start:.0f} and {end:.0f} the load generator was on time in only "
                f"{len(kept)} of {len(whole)} seconds, so nothing was measured of the server; end what else runs here"
            )
        return Stretch(kept, len(whole) - len(kept))


@dataclass(frozen=True)
class Stretch:
    """Seconds of a run that count."""

    seconds: list[dict]
    left_out: int

    @property
    def goodput(self) -> float:
        """Right answers in time a second."""
        return self.sum("good") / len(self.seconds)

    @property
    def attainment(self) -> float:
        """Right answers in time, of what was offered."""
        return self.sum("good") / max(self.sum("offered"), 1)

    @property
    def p99_ms(self) -> float:
        """The middle one of the seconds' p99: one hiccup of the machine does not move it, a slower server does."""
        known = [second["p99_ms"] for second in self.seconds if second["p99_ms"] is not None]
        return statistics.median(known) if known else float("inf")

    def as_fast_as(self, other: Stretch, slo_ms: float) -> bool:
        """Whether p99 is at most 1.2 times the other's; 5 % of the objective more is the machine's own unrest."""
        return self.p99_ms <= 1.2 * other.p99_ms + 0.05 * slo_ms

    def sum(self, key: str) -> int:
        return sum(second[key] for second in self.seconds)


def reasons(figures: dict) -> Counter[str]:
    """Refused and failed requests, by why."""
    return Counter(figures["refused"]) + Counter(figures["failed"])
