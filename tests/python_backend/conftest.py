"""Servers with the models of `tests/python_models`: Tessera, and a real Triton if this machine can run it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from oracle.child import CannotRun
from oracle.triton import Triton
from python_backend import archive

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
def repository(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A copy of the models: interpreters write caches next to modules."""
    folder = tmp_path_factory.mktemp("models") / "models"
    shutil.copytree(MODELS, folder)
    # Triton's processes need the older numpy of their environment.
    oracle = pytestconfig.getoption("--oracle-venv")
    packages = next(iter(oracle.glob("lib/python3*/site-packages")), None) if oracle else None
    environment = folder / "own_environment" / "environment.tar.gz"
    archive.write(environment, "packed", packages or Path(sysconfig.get_path("purelib")))
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
