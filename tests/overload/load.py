"""Runs `tessera load` against a server under test and reads the report."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import pytest

from overload.pauses import Pauses, Watch

# Exit codes of `tessera load`: success; success, but late in some seconds.
RAN = (0, 3)
# Time limit of a run beyond the time for which it sends.
SPARE_SECONDS = 60


@dataclass(frozen=True)
class Traffic:
    """Requests of one row for one model."""

    url: str
    model: str
    rate: float
    slo_ms: float

    def start(self, *stages: tuple[int, float]) -> Running:
        """Start sending, for stages of (seconds, multiple of the rate), without warm-up."""
        plan = [f"--stage={seconds}s:{factor}" for seconds, factor in stages]
        return self._start(sum(seconds for seconds, _ in stages), *plan)

    def run(self, *stages: tuple[int, float]) -> Report:
        """Send and wait for the report."""
        return self.start(*stages).report()

    def capacity(self, seconds: int) -> float:
        """The highest rate with 99 % attainment, found by trials of that length."""
        trials = self._start(40 * seconds, f"--duration={seconds}s", "--find-capacity")
        return trials.report().document["capacity"]["rate"]

    def throughput(self, concurrency: int, seconds: int) -> float:
        """Answers per second with this many requests in flight."""
        run = self._start(seconds, f"--duration={seconds}s", f"--concurrency={concurrency}").report()
        return run.total["answered"] / run.document["measured_s"]

    def _start(self, seconds: int, *how: str) -> Running:
        command = [os.environ["TESSERA_BIN"], "load", "--json", "--url", self.url, "--model", self.model]
        command += ["--rate", str(self.rate), "--slo", f"{self.slo_ms}ms", "--warmup", "0s", *how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return Running(process, seconds)


class Running:
    """A run in progress."""

    def __init__(self, process: subprocess.Popen[str], seconds: int) -> None:
        self._process = process
        self._seconds = seconds
        self._watch = Watch()

    def report(self) -> Report:
        """Wait for the end of the run."""
        try:
            text, said = self._process.communicate(timeout=self._seconds + SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            pauses = self._watch.end()
        assert self._process.returncode in RAN, f"tessera load ended with {self._process.returncode}: {said[-2000:]}"
        return Report(json.loads(text), pauses)


@dataclass(frozen=True)
class Report:
    """The output of `tessera load --json`, and the pauses of the machine during the run."""

    document: dict
    pauses: Pauses

    @property
    def started(self) -> float:
        """Due time of the first request, in seconds since the epoch."""
        return datetime.fromisoformat(self.document["started"]).timestamp()

    @property
    def total(self) -> dict:
        return self.document["total"]

    @property
    def stages(self) -> list[dict]:
        return [stage["figures"] for stage in self.document["stages"]]

    def between(self, start: float, end: float) -> Stretch:
        """The whole seconds from `start` to `end` in which the client was on time. At least half of them must be.

        The client shares the server's cores. A second in which it was late shows other load on the machine, not the
        server's behaviour.
        """
        whole = [second for second in self.document["seconds"] if start <= second["t"] and second["t"] + 1 <= end]
        kept = [second for second in whole if second["kept_up"]]
        if not kept or 2 * len(kept) < len(whole):
            pytest.fail(
                f"machine too busy: between second {start:.0f} and {end:.0f}, the load generator was on time in only "
                f"{len(kept)} of {len(whole)} seconds; stop other programs and run the test again"
            )
        return self.of_seconds(kept, len(whole) - len(kept))

    def of_seconds(self, seconds: list[dict], left_out: int = 0) -> Stretch:
        """These seconds of the report."""
        waits = [self.pause_p99_ms(second["t"], second["t"] + 1) for second in seconds]
        return Stretch(seconds, left_out, statistics.median(waits) if waits else 0.0)

    def pause_p99_ms(self, start: float, end: float) -> float:
        """By how much pauses of the machine delay requests between these seconds of the run."""
        return self.pauses.wait_p99_ms(self.started + start, self.started + end)


@dataclass(frozen=True)
class Stretch:
    """Measured seconds of a run."""

    seconds: list[dict]
    left_out: int
    # Median of the seconds' delays by pauses of the machine.
    pause_ms: float

    @property
    def goodput(self) -> float:
        """Right answers in time, per second."""
        return self.sum("good") / len(self.seconds)

    @property
    def attainment(self) -> float:
        """Goodput divided by offered load."""
        return self.sum("good") / max(self.sum("offered"), 1)

    @property
    def p99_ms(self) -> float:
        """Median of the seconds' p99: robust against a single stall of the machine, sensitive to a slower server."""
        known = [second["p99_ms"] for second in self.seconds if second["p99_ms"] is not None]
        return statistics.median(known) if known else float("inf")

    def as_fast_as(self, other: Stretch, slo_ms: float) -> bool:
        """Whether p99 is at most 1.2 times the other's plus 5 % of the objective for noise of the machine.

        Pauses of the machine that were measured in these seconds and not in the other's come on top.
        """
        pauses = max(0.0, self.pause_ms - other.pause_ms)
        return self.p99_ms <= 1.2 * other.p99_ms + 0.05 * slo_ms + pauses

    def sum(self, key: str) -> int:
        return sum(second[key] for second in self.seconds)


def reasons(figures: dict) -> Counter[str]:
    """Refused and failed requests by reason."""
    return Counter(figures["refused"]) + Counter(figures["failed"])
