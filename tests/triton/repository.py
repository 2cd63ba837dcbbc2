"""The repository of these tests: every configuration, and models for the other tests."""

from __future__ import annotations

from pathlib import Path

from fixtures import models
from triton import configs

CACHED = configs.BATCHED + 'response_cache { enable: true }\nmetric_tags { key: "team" value: "blue" }\n'
ANY = configs.BATCHED


def write(repository: Path) -> None:
    """Writes the repository."""
    configs.write(repository)
    for name, model, text in (
        ("cached", models.identity("FP32", ["N", "M"]), CACHED),
        ("plain", models.identity("FP32", ["N", "M"]), ANY),
        ("words", models.identity("BYTES", ["N", "M"]), 'backend: "onnxruntime"\nmax_batch_size: 8\n'),
        ("pairs", models.add_sub(), 'backend: "onnxruntime"\nmax_batch_size: 8\n'),
    ):
        models.place(repository, name, model)
        (repository / name / "config.pbtxt").write_text(text)
