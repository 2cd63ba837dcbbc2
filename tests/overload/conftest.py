"""The one option: how long each test presses."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="press four times as long, and look for the capacity")


@pytest.fixture(scope="session")
def length(request: pytest.FixtureRequest) -> int:
    """Multiple of the short size."""
    return 4 if request.config.getoption("--long") else 1
