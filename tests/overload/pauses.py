"""Pauses of the machine's cores, measured while a test runs.

The hypervisor takes a core away for some milliseconds, or the kernel works and cannot be preempted. No server can answer
in that time. On each core, a thread of real-time priority wakes up every two milliseconds, and how late it is shows the
pauses. Threads of the server and of the load generator cannot delay it, so it shows nothing that they cause themselves.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass

PERIOD = 0.002
# Shorter ones are the time of a wake-up.
SHORTEST = 0.001
# Arrivals for which the wait is computed.
STEP = 0.0005


@dataclass(frozen=True)
class Pauses:
    """When a core stood still: from and until, in seconds since the epoch."""

    spans: list[tuple[float, float]]

    def wait_p99_ms(self, start: float, end: float) -> float:
        """The 99th percentile of how long a request that arrives from `start` to `end` waits for cores to go on.

        It needs all cores: the client's, the network's and the lane's.
        """
        waits = [0.0] * max(1, int((end - start) / STEP))
        for first, last in self.spans:
            for nth in range(max(0, int((first - start) / STEP)), min(len(waits), int((last - start) / STEP) + 1)):
                waits[nth] += max(0.0, last - max(first, start + nth * STEP))
        return sorted(waits)[int(0.99 * (len(waits) - 1))] * 1e3


class Watch:
    """Measures from now on. Without the right to real-time priority it sees no pauses."""

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        command = [sys.executable, "-m", "overload.pauses"]
        self._watchers = [
            subprocess.Popen([*command, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for core in cores
        ]

    def end(self) -> Pauses:
        """Stop measuring."""
        said = [watcher.communicate(timeout=30)[0] for watcher in self._watchers]
        spans = [line.split() for text in said for line in text.splitlines()]
        return Pauses([(float(first), float(last)) for first, last in spans])


def watch(core: int) -> None:
    """Measure one core until the end of the input, then print its pauses."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print(f"pauses of core {core} are not measured: real-time priority is not permitted (run as root, or with CAP_SYS_NICE)", file=sys.stderr)
        return
    spans = []
    due = time.time() + PERIOD
    while not select.select([sys.stdin], [], [], max(0.0, due - time.time()))[0]:
        now = time.time()
        if now - due > SHORTEST:
            spans.append((due, now))
        due = now + PERIOD
    for first, last in spans:
        print(first, last)


if __name__ == "__main__":
    watch(int(sys.argv[1]))
