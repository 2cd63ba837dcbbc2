"""The load on the fleet, and what became of its requests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from fixtures.wait import until

WINDOW = 1.0


@dataclass(frozen=True)
class Request:
    """A request that ended. Times are of the monotonic clock, in seconds."""

    model: str
    due: float
    sent: float
    ended: float
    # `good` (answered in time), `late`, `refused` (by a server or picker, with its reason), or `lost`.
    outcome: str
    reason: str


def recovery(requests: list[Request], fault: float) -> float:
    """Seconds from the fault until a second begins in which every request was answered in time."""
    begin = fault
    for request in sorted(requests, key=lambda request: request.due):
        if request.outcome == "good":
            continue
        if request.due - begin >= WINDOW:
            break
        begin = max(begin, request.due)
    return begin - fault


class Load:
    """Requests at the rates of the workload, from the start of this object until its end."""

    def __init__(self, address: str, seconds: float) -> None:
        command = [sys.executable, "-m", "fleet.proof.client", address, str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._requests: list[Request] = []
        self._settled = time.monotonic()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            row = json.loads(line)
            with self._lock:
                if "settled" in row:
                    self._settled = row["settled"]
                else:
                    self._requests.append(Request(**row))

    def since(self, begin: float, end: float = float("inf")) -> list[Request]:
        """Requests that ended after `begin` and were due before `end`."""
        with self._lock:
            return [request for request in self._requests if request.ended >= begin and request.due < end]

    def wait_settled(self, at: float) -> None:
        """Wait until every request that was due before `at` has ended."""
        until(lambda: self._settled >= at, lambda: f"the client answers: {self._process.poll()}", 30)

    def wait_clean(self, since: float, seconds: float, models: set[str] | None = None) -> float:
        """Wait for a second from `since` on in which every request, or those for some models, was answered in time; its begin."""

        def begin() -> float:
            requests = [request for request in self.since(since) if models is None or request.model in models]
            return since + recovery(requests, since)

        def bad() -> list[Request]:
            return [request for request in self.since(since) if request.outcome != "good"][-5:]

        until(lambda: self._settled >= begin() + WINDOW, lambda: f"a second of answers in time; last others: {bad()}", seconds)
        return begin()

    def stop(self) -> None:
        """End it, after the requests that are open."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
