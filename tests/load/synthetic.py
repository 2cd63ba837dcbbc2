"""A model whose capacity is known: a batch takes as long as is written here, and next to no processor."""

from __future__ import annotations

from pathlib import Path

# One request at a time, 30 ms each: no policy can do more or less with it.
REQUEST_MS = 30
DESCRIPTION = f"""
max_batch = 1
inputs = [{{ name = "x", datatype = "FP32", dims = [-1, 4] }}]
outputs = [{{ name = "y", datatype = "FP32", dims = [-1, 4] }}]

[time]
alpha_us = {REQUEST_MS * 1000}
"""


def place(repository: Path, name: str) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(DESCRIPTION)
