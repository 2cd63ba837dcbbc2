"""Models whose capacity is known: a batch takes as long as is written here, and no processor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DESCRIPTION = """
max_batch = {max_batch}
inputs = [{{ name = "x", datatype = "FP32", dims = [-1, {inputs}] }}]
outputs = [{{ name = "y", datatype = "FP32", dims = [-1, {outputs}] }}]

[time]
alpha_us = {alpha_us}
beta_us = {beta_us}
"""


@dataclass(frozen=True)
class Synthetic:
    """A batch of n rows takes alpha + n beta microseconds; rows are of that many FP32 in and out."""

    alpha_us: int
    beta_us: int
    max_batch: int
    inputs: int = 16
    outputs: int = 16

    @property
    def capacity(self) -> float:
        """Rows a second of one lane that always runs the largest batch."""
        return self.max_batch * 1e6 / (self.alpha_us + self.max_batch * self.beta_us)

    def place(self, repository: Path, name: str) -> None:
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        values = {key: getattr(self, key) for key in ("alpha_us", "beta_us", "max_batch", "inputs", "outputs")}
        (folder / "model.toml").write_text(DESCRIPTION.format(**values))


# 615 rows a second on one lane: five times that is what a client on the server's own two cores sends with ease. Long
# batches, because each costs two wake-ups of threads, which on a busy machine come a millisecond late.
STEADY = Synthetic(alpha_us=20_000, beta_us=1_000, max_batch=32)
