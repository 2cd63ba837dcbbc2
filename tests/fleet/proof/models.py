"""The models of `loadtest/fleet/proof.toml`, as servers, resources and clients need them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fixtures.synthetic import Synthetic

WORKLOAD = Path(__file__).resolve().parents[3] / "loadtest" / "fleet" / "proof.toml"
# The model with one copy.
SINGLE = "translator"
DEVICE = "emulated"


@dataclass(frozen=True)
class Model:
    """A model. A batch of n rows takes fixed + n row microseconds."""

    name: str
    slo: str
    slo_s: float
    fixed_us: int
    row_us: int
    max_batch: int
    rate: float

    @property
    def copies(self) -> int:
        """Nodes that have it while all nodes work."""
        return 1 if self.name == SINGLE else 2

    def synthetic(self) -> Synthetic:
        """The files of the model. Its batch times are those of the emulated devices."""
        names = {"input": "INPUT0", "output": "OUTPUT0"}
        return Synthetic(self.fixed_us, self.row_us, self.max_batch, inputs=4, outputs=4, **names)


def microseconds(time: str) -> int:
    """A time such as `5ms`."""
    for unit, factor in (("us", 1), ("ms", 1_000), ("s", 1_000_000)):
        if time.endswith(unit) and time[: -len(unit)].isdigit():
            return int(time[: -len(unit)]) * factor
    raise ValueError(f"expected a time such as `5ms`, got `{time}`")


def read() -> list[Model]:
    """The models of the workload file."""
    found = []
    for name, row in tomllib.loads(WORKLOAD.read_text())["models"].items():
        profile = row["profile"]
        times = microseconds(row["slo"]) / 1e6, microseconds(profile["beta"]), microseconds(profile["alpha"])
        found.append(Model(name, row["slo"], *times, profile["max_batch"], row["rate"]))
    return found


def profiles(models: list[Model]) -> str:
    """Batch times on an emulated device, in the format of `partition.profiles`."""
    lines = []
    for model in models:
        facts = {"version": 1, "model": model.name, "device": DEVICE, "engine": "synthetic", "source": "typed_in"}
        lines.append({"profile": {**facts, "units_total": 1, "weights_bytes": 100_000_000}})
        for batch in sorted({1, model.max_batch}):
            time = model.fixed_us + batch * model.row_us
            cell = {"batch": batch, "units": 1, "p50_us": time, "p95_us": time, "p99_us": time, "count": 100}
            lines.append({"cell": cell})
    return "".join(json.dumps(line) + "\n" for line in lines)
