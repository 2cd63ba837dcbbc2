"""Stores results as JSON, next to the output of the clients, so that a document can combine several runs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.peers.clients import Load


@dataclass
class ClosedLoop:
    """One client against one server at one concurrency."""

    server: str
    client: str
    protocol: str
    concurrency: int
    rate: float = 0.0
    cpu_us: float = 0.0
    latency_us: dict[str, float] = field(default_factory=dict)
    errors: int = 0
    # Why a figure is missing, or empty.
    missing: str = ""

    @classmethod
    def of(cls, server: str, client: str, protocol: str, concurrency: int, load: Load) -> ClosedLoop:
        latency = {f"{p:g}": us for p, us in load.latency_us.items()}
        return cls(server, client, protocol, concurrency, load.rate, load.cpu_us, latency, load.errors)

    @property
    def p50_us(self) -> float:
        return self.latency_us.get("50", float("nan"))

    @property
    def p99_us(self) -> float:
        return self.latency_us.get("99", float("nan"))


@dataclass
class Capacity:
    """The highest open-loop rate with 99 % of the answers within the SLO."""

    server: str
    slo_ms: float
    rate: float = 0.0
    attainment: float = 0.0
    p99_ms: float | None = None
    # Rates that were tried.
    trials: int = 0
    # Requests of the trial at that rate: one in a hundred of them may be late.
    offered: int = 0
    # What casts doubt on the figure.
    note: str = ""
    missing: str = ""
    # What queueing allows with the batch times of this server (limit.py); only for Tessera.
    limit: float | None = None


@dataclass
class Outcome:
    """Everything about one model."""

    model: str
    about: str
    when: str
    command: str
    seconds: int
    # Most of one core that other programs used during a measurement that counts.
    others: float
    # ONNX Runtime alone, one row, in Python.
    engine_ms: float
    engine_mib: float
    slos_ms: list[float]
    families: dict[str, str]
    settings: dict[str, str]
    closed_loop: list[ClosedLoop] = field(default_factory=list)
    capacity: list[Capacity] = field(default_factory=list)
    # Server -> proportional set size after load; "idle" before the first request.
    idle_mib: dict[str, float] = field(default_factory=dict)
    loaded_mib: dict[str, float] = field(default_factory=dict)


class Results:
    """The folder of one day."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, model: str) -> None:
        """Forgets what clients printed about a model in an earlier run of the day."""
        shutil.rmtree(self.folder / model, ignore_errors=True)

    def keep(self, model: str, name: str, raw: str) -> None:
        """What a client printed, word for word."""
        path = self.folder / model / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(raw)

    def take(self, finished: Results, model: str) -> None:
        """Replaces a model's figures by those of a run that came to its end."""
        self.begin(model)
        shutil.copytree(finished.folder / model, self.folder / model)
        shutil.copyfile(finished.folder / f"{model}.json", self.folder / f"{model}.json")

    def save(self, outcome: Outcome) -> None:
        (self.folder / f"{outcome.model}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")

    def save_machine(self, machine: dict[str, object]) -> None:
        (self.folder / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")

    def machine(self) -> dict[str, object]:
        return json.loads((self.folder / "machine.json").read_text())

    def outcome(self, model: str) -> Outcome | None:
        path = self.folder / f"{model}.json"
        if not path.is_file():
            return None
        content = json.loads(path.read_text())
        content["closed_loop"] = [ClosedLoop(**row) for row in content["closed_loop"]]
        content["capacity"] = [Capacity(**row) for row in content["capacity"]]
        return Outcome(**content)


def machine() -> dict[str, object]:
    processors = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next((line.split(":", 1)[1].strip() for line in processors if line.startswith("model name")), "unknown"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
