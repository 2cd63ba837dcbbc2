"""One Tessera for the tests with perf_analyzer. Without perf_analyzer, they are skipped with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.peers.analyzer import Analyzer  # noqa: E402
from fixtures import models, sequences  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from oracle.child import CannotRun  # noqa: E402


@pytest.fixture(scope="session")
def analyzer() -> Analyzer:
    try:
        return Analyzer.find(Path(os.environ["ANALYZER_VENV"]))
    except CannotRun as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    repository = tmp_path_factory.mktemp("repository")
    models.place(repository, "simple", models.add_sub())
    models.place(repository, "free", models.identity("FP32", ["N", "M"]))
    models.place(repository, "words", models.identity("BYTES", ["N", 4]))
    models.place(repository, "fixed", models.identity("FP32", [2, 3]))
    sequences.sums(repository, "sums")
    with Tessera(repository) as started:
        yield started.wait_ready()
