"""Servers with the models of `tests/python_models`: Tessera, and a real Triton if this machine can run it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from oracle.child import CannotRun
from oracle.triton import Triton

MODELS = Path(__file__).resolve().parents[1] / "python_models"
# Sample inputs would change the state of a model that counts.
CONFIG = """
[models.counter]
sample_runs = false

[models.fragile]
run_timeout = "2s"
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--oracle-venv", type=Path, help="environment with the wheel of Triton")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the models: interpreters write caches next to modules."""
    folder = tmp_path_factory.mktemp("models") / "models"
    shutil.copytree(MODELS, folder)
    return folder


def environment() -> dict[str, str]:
    """The interpreter of this test has numpy."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(scope="session")
def tessera(repository: Path):
    with Tessera(repository, CONFIG, environment=environment()) as server:
        yield server.wait_ready(120)


@pytest.fixture(scope="session")
def triton(repository: Path, pytestconfig: pytest.Config):
    venv = pytestconfig.getoption("--oracle-venv")
    if venv is None or not venv.is_dir():
        pytest.skip("no Triton to compare with: --oracle-venv")
    try:
        server = Triton.on_free_ports(venv, repository)
    except CannotRun as reason:
        pytest.skip(f"Triton cannot run here: {reason}")
    with server:
        server.wait_ready()
        yield server
