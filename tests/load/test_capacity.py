"""`--find-capacity` finds the configured capacity of a synthetic model."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from load.command import load
from load.conftest import STEADY

# Five requests: a stall of a busy machine may last that long, and a rate that is 3 % too high queues that many in 4 s.
SLO_MS = 160


@pytest.fixture(scope="module")
def one_lane(tmp_path_factory: pytest.TempPathFactory):
    repository = tmp_path_factory.mktemp("one-lane")
    STEADY.place(repository, "steady")
    config = '[lanes]\ncount = 1\n[models.steady]\nslo = "20s"\n'
    with Tessera(repository, config=config) as running:
        yield running.wait_ready()


def test_find_capacity_finds_the_known_capacity(one_lane: Tessera) -> None:
    # With evenly spaced requests, all are in time up to the capacity. Above it, the queue grows.
    search = ("--model", "steady", "--rate", 30, "--arrivals", "uniform", "--slo", f"{SLO_MS}ms", "--duration", "4s", "--warmup", "0s")
    found = load("--url", f"http://{one_lane.http_address}", *search, "--find-capacity", "--attainment", 0.95, "--json").report()
    capacity = found["capacity"]
    assert abs(capacity["rate"] / STEADY.capacity - 1) <= 0.05, capacity
    assert found["total"]["attainment"] >= 0.95
