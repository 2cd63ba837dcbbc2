"""One API server for all tests, if this machine has one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import ApiServer, folder
from chart import NAMESPACE
from schemas import definitions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    scripts = folder()
    if scripts is None:
        pytest.skip("no API server: TESSERA_K8S names no folder with start.sh")
    with ApiServer(scripts, tmp_path_factory.mktemp("kubernetes")) as server:
        server.define(definitions())
        server.kubectl("create", "namespace", NAMESPACE)
        yield server
