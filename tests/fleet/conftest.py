"""An API server with the kinds installed, for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.kubernetes import ApiServer


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.install()
        yield server
