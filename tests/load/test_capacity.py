"""The capacity that is found is the one that there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from load.command import load
from load.synthetic import REQUEST_MS, place

# One lane that takes one request at a time.
CAPACITY = 1000 / REQUEST_MS
# Five requests: what a busy machine may stand still for, and what a rate that is 3 % too high piles up in 4 s.
SLO_MS = 160


@pytest.fixture(scope="module")
def one_lane(tmp_path_factory: pytest.TempPathFactory):
    repository = tmp_path_factory.mktemp("one-lane")
    place(repository, "steady")
    config = '[lanes]\ncount = 1\n[models.steady]\nslo = "20s"\n'
    with Tessera(repository, config=config) as running:
        yield running.wait_ready()


def test_the_capacity_of_a_model_whose_capacity_is_known(one_lane: Tessera) -> None:
    # Evenly spaced requests: all are in time up to the capacity, and beyond it the queue grows by the excess.
    search = ("--model", "steady", "--rate", 30, "--arrivals", "uniform", "--slo", f"{SLO_MS}ms", "--duration", "4s", "--warmup", "0s")
    found = load("--url", f"http://{one_lane.http_address}", *search, "--find-capacity", "--attainment", 0.95, "--json").report()
    capacity = found["capacity"]
    assert abs(capacity["rate"] / CAPACITY - 1) <= 0.05, capacity
    assert found["total"]["attainment"] >= 0.95
