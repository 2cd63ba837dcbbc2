"""The option --long."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run four times as long, and measure the capacity")


@pytest.fixture(scope="session")
def length(request: pytest.FixtureRequest) -> int:
    """Multiple of the default duration."""
    return 4 if request.config.getoption("--long") else 1
