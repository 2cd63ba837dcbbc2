"""One server for the whole run: a new one, or the one at --base-url and --grpc-url.

The two client libraries register the same protobuf names and cannot share a process: run one folder at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

# Models that tract cannot load; tests/lifecycle checks the error.
TRACT_LACKS = {"identity_bf16"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--base-url", default=os.environ.get("TESSERA_HTTP"), help="host:port of a running HTTP server")
    parser.addoption("--grpc-url", default=os.environ.get("TESSERA_GRPC"), help="host:port of the same server's gRPC")
    parser.addoption("--engine", default="ort", choices=["ort", "tract"], help="engine of the server to start")
    parser.addoption("--long", action="store_true", help="the zoo also with every model of a fixed batch")


@dataclass(frozen=True)
class Addresses:
    """Addresses of the server under test; `process` is None if it was running already."""

    http: str
    grpc: str
    process: Tessera | None
    lacks: frozenset[str]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    given = request.config.getoption("--base-url")
    if given:
        yield Addresses(given, request.config.getoption("--grpc-url"), None, frozenset({"identity_bf16"}))
        return
    engine = request.config.getoption("--engine")
    lacks = frozenset(TRACT_LACKS if engine == "tract" else ())
    repository = tmp_path_factory.mktemp("repository")
    models.build(repository, without=lacks)
    with Tessera(repository, config=models.settings(repository, engine)) as started:
        started.wait_ready()
        yield Addresses(started.http_address, started.grpc_address, started, lacks)


@pytest.fixture(scope="session")
def http(server: Addresses):
    import tritonclient.http

    with tritonclient.http.InferenceServerClient(server.http, concurrency=4) as client:
        yield client


@pytest.fixture(scope="session")
def grpc(server: Addresses):
    import tritonclient.grpc

    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        yield client
