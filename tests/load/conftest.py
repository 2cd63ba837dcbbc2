"""The servers that the tests send to: ours, once for all of them, and others where they are installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from load.synthetic import place  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    venv = os.environ.get("TESSERA_VENV", str(Path(__file__).resolve().parents[2] / "target" / "venv"))
    parser.addoption("--venv", type=Path, default=Path(venv), help="where the other servers are installed")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    """Models: the bundled `digits`, generated ones for a tensor type each, and `steady`, whose capacity is known."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("simple", "identity_fp32", "identity_int64", "identity_bytes", "fixed"):
        models.place(repository, name, models.fixtures()[name])
    shutil.copytree(models.BUNDLED / "digits", repository / "digits")
    place(repository, "steady")
    names = sorted(folder.name for folder in repository.iterdir())
    config = "".join(f'[models.{name}]\nslo = "20s"\n' for name in names)
    with Tessera(repository, config=config) as running:
        yield running.wait_ready()


@pytest.fixture(scope="session")
def urls(server: Tessera) -> dict[str, str]:
    """The server in the words of each protocol."""
    http, grpc = server.http_address, server.grpc_address
    return {"http": f"http://{http}", "http2": f"http2://{http}", "grpc": f"grpc://{grpc}"}
