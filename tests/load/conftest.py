"""The server for the tests: one Tessera for all of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.synthetic import Synthetic  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

# One request at a time, 30 ms each: its capacity does not depend on the policy.
STEADY = Synthetic(alpha_us=30_000, inputs=4, outputs=4)


def pytest_addoption(parser: pytest.Parser) -> None:
    venv = os.environ.get("TESSERA_VENV", str(Path(__file__).resolve().parents[2] / "target" / "venv"))
    parser.addoption("--venv", type=Path, default=Path(venv), help="folder with the other servers")
    parser.addoption("--long", action="store_true", help="test against MLServer too")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    """Models: the bundled `digits`, one generated model for each tensor type, and `steady`, whose capacity is known."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("simple", "identity_fp32", "identity_int64", "identity_bytes", "fixed"):
        models.place(repository, name, models.fixtures()[name])
    shutil.copytree(models.BUNDLED / "digits", repository / "digits")
    STEADY.place(repository, "steady")
    names = sorted(folder.name for folder in repository.iterdir())
    config = "".join(f'[models.{name}]\nslo = "20s"\n' for name in names)
    with Tessera(repository, config=config) as running:
        yield running.wait_ready()


@pytest.fixture(scope="session")
def urls(server: Tessera) -> dict[str, str]:
    """URLs of the server by protocol."""
    http, grpc = server.http_address, server.grpc_address
    return {"http": f"http://{http}", "http2": f"http2://{http}", "grpc": f"grpc://{grpc}"}
