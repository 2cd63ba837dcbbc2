"""Tessera and a real Triton with the same repository. Without Triton, these tests are skipped with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402
from oracle.triton import CannotRun, Triton  # noqa: E402
from triton import repository as models  # noqa: E402

# Triton's cache is off unless it is given a size.
TESSERA = "[metrics]\ntriton_names = true\n"
TRITON_OPTIONS = ["--cache-config=local,size=1048576"]


@dataclass(frozen=True)
class Pair:
    """Both servers."""

    tessera: Tessera
    triton: Triton


@dataclass(frozen=True)
class TraceFolders:
    """Where the servers of the session write traces."""

    tessera: Path
    triton: Path


@pytest.fixture(scope="session")
def trace_folders(tmp_path_factory: pytest.TempPathFactory) -> TraceFolders:
    return TraceFolders(tmp_path_factory.mktemp("traces"), tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, trace_folders: TraceFolders) -> Iterator[Pair]:
    repository = tmp_path_factory.mktemp("repository")
    models.write(repository)
    options = [*TRITON_OPTIONS, f"--trace-config=triton,file={trace_folders.triton / 'trace.json'}"]
    try:
        triton = Triton.on_free_ports(Path(os.environ["ORACLE_VENV"]), repository, options)
    except CannotRun as reason:
        pytest.skip(f"no Triton here: {reason}")
    config = f'{TESSERA}[trace]\ndir = "{trace_folders.tessera}"\n'
    with triton, Tessera(repository, config, ["--lanes", "2"]) as tessera:
        until(tessera.is_ready, lambda: f"Tessera is ready:\n{tessera.log()[-3000:]}", 60.0)
        triton.wait_ready()
        yield Pair(tessera, triton)
