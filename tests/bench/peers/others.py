"""CPU time that other programs take on this machine. It would be missing in every figure, so none is measured next to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.peers import process

# Part of one core that other programs may use during a measurement.
SHARE_MAX = 0.05
# Attempts at a measurement, after which the run ends.
ATTEMPTS = 3
# How long it waits for other programs to end before each of them, and how often it looks.
QUIET_TIMEOUT_S, INTERVAL_S = 60.0, 1.0
KERNEL = 2

Measured = TypeVar("Measured")


class NotQuietError(Exception):
    """Other programs never left the machine alone."""


@dataclass(frozen=True)
class Use:
    """What other programs used over some time."""

    # Cores.
    share: float
    # The process that used most of it.
    most: str

    @property
    def is_quiet(self) -> bool:
        return self.share <= SHARE_MAX

    def __str__(self) -> str:
        return f"other programs used {self.share:.0%} of a core, most of it `{self.most}`"


class Watch:
    """Counts from its creation on. Children that a process waited for count with it, so short ones are not missed."""

    def __init__(self) -> None:
        self._own = set(process.family(os.getpid()))
        self._before, self._since = _ticks(), time.monotonic()

    def use(self) -> Use:
        seconds = max(time.monotonic() - self._since, 1e-3)
        after = _ticks()
        own = self._own | set(process.family(os.getpid()))
        used = {}
        for pid in (self._before.keys() | after.keys()) - own:
            # The ticks of a process that ended are now among those of its parent.
            name = (after.get(pid) or self._before[pid])[1]
            used[pid] = (after.get(pid, (0, ""))[0] - self._before.get(pid, (0, ""))[0], name)
        total = max(sum(ticks for ticks, _ in used.values()), 0)
        most = max(used.values(), default=(0, "none"))[1]
        return Use(total / process.TICK / seconds, most)


def _ticks() -> dict[int, tuple[int, str]]:
    """User and system time of each process and of the children that it waited for, and its name. The kernel's own
    threads work for everyone, so they are left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            head, tail = (entry / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        fields = tail.split()
        if KERNEL not in (int(fields[1]), int(entry.name)):
            found[int(entry.name)] = (sum(map(int, fields[11:15])), head.split("(", 1)[1])
    return found


def wait_for_quiet() -> None:
    """Returns when nothing else is at work, or after a minute: what is measured then tells."""
    until = time.monotonic() + QUIET_TIMEOUT_S
    while time.monotonic() < until:
        watch = Watch()
        time.sleep(INTERVAL_S)
        if watch.use().is_quiet:
            return


def alone(measure: Callable[[], Measured], say: Callable[[str], None]) -> tuple[Measured, float]:
    """What `measure` gives while no other program is at work, and the part of a core that others used all the same."""
    for _ in range(ATTEMPTS):
        wait_for_quiet()
        watch = Watch()
        result = measure()
        use = watch.use()
        if use.is_quiet:
            return result, use.share
        say(f"{use}: measured again")
    raise NotQuietError(f"{use} in each of {ATTEMPTS} attempts")
