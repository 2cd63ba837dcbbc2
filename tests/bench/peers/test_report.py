"""What is made of figures: verdicts, the document, the plots, and the reading of what the load generator prints."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.peers import capacity, document, plots, verdicts
from bench.peers.record import Capacity, ClosedLoop, Outcome, Results


def row(server: str, rate: float, cpu_us: float, p99_us: float, errors: int = 0) -> ClosedLoop:
    latency = {"50": p99_us / 2, "99": p99_us}
    return ClosedLoop(server, "wrk", "HTTP, binary", 8, rate, cpu_us, latency, errors)


def outcome(closed_loop: list[ClosedLoop], rates: dict[str, float] | None = None) -> Outcome:
    servers = ["tessera", "triton, delay 0", "mlserver, no batching"]
    return Outcome(
        model="identity",
        about="gives back what it gets",
        when="2026-01-01T00:00:00+00:00",
        command="tests/run bench",
        seconds=3,
        others=0.01,
        engine_ms=1.0,
        engine_mib=20.0,
        slos_ms=[5.0] if rates else [],
        families={name: name.split(",")[0] for name in servers},
        settings={name: "none\n" for name in servers},
        closed_loop=closed_loop,
        capacity=[Capacity(name, 5.0, rate, 0.995, 4.5, 6, 800) for name, rate in (rates or {}).items()],
        idle_mib={name: 50.0 for name in servers},
        loaded_mib={name: 100.0 for name in servers},
    )


def test_a_peer_that_is_faster_is_named_with_both_figures():
    found = verdicts.closed_loop_losses(
        outcome([row("tessera", 900, 10, 4000), row("triton, delay 0", 1000, 30, 5000)])
    )
    assert found == [
        "`identity`, wrk over HTTP with 8 in flight, requests per second: Tessera 900, triton, delay 0 1,000 (10% worse)."
    ]


def test_a_difference_within_the_noise_does_not_count_as_slower():
    assert (
        verdicts.closed_loop_losses(outcome([row("tessera", 980, 30, 5000), row("triton, delay 0", 1000, 30, 5000)]))
        == []
    )


def test_rows_of_tessera_with_failures_are_reported_and_not_compared():
    found = verdicts.closed_loop_losses(
        outcome([row("tessera", 9000, 1, 10, errors=7), row("triton, delay 0", 1000, 30, 5000)])
    )
    assert found == ["`identity`, wrk over HTTP with 8 in flight: Tessera has no figure (7 failed)."]


def test_a_tessera_that_ends_is_reported():
    found = verdicts.closed_loop_losses(outcome([ClosedLoop("tessera", "-", "-", 0, missing="it ended")]))
    assert found == ["`identity`: Tessera failed (it ended)."]


def test_a_peer_with_failures_cannot_be_the_best_peer():
    assert (
        verdicts.closed_loop_losses(outcome([row("tessera", 9, 9, 9), row("triton, delay 0", 99, 1, 1, errors=1)]))
        == []
    )


def test_a_capacity_below_a_peer_is_reported_and_misses_the_goal():
    one = outcome([], {"tessera": 90.0, "triton, delay 0": 100.0, "mlserver, no batching": 20.0})
    assert verdicts.capacity_losses(one) == [
        "`identity`, capacity at 5 ms: Tessera 90/s, triton, delay 0 100/s (10% less)."
    ]
    assert [aim.met for aim in verdicts.aims([one])] == [False]
    better = outcome([], {"tessera": 100.0, "triton, delay 0": 100.0})
    assert verdicts.capacity_losses(better) == []
    assert [aim.met for aim in verdicts.aims([better])] == [True]


def test_the_goal_of_a_capacity_is_what_queueing_allows():
    one = outcome([], {"tessera": 97.0})
    one.capacity[0].limit = 100.0
    assert [(aim.met, aim.measured) for aim in verdicts.aims([one])] == [(True, "97.0 / 100.0 per second = 97.0%")]
    one.capacity[0].limit = 101.0
    assert [aim.met for aim in verdicts.aims([one])] == [False]


def test_cpu_goals_are_a_third_of_native_triton_and_of_the_best_peer():
    aims = verdicts.aims([outcome([row("tessera", 1000, 25, 10), row("triton, delay 0", 100, 60, 10)])])
    assert [aim.met for aim in aims] == [True, False]
    assert aims[0].measured == "25.0 / 93.0 us = 0.27x"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path / "tests" / "bench" / "results" / "2026-01-01")
    made.save_machine(
        {
            "cpu": "a cpu",
            "cores": 2,
            "memory_gib": 24.0,
            "kernel": "6",
            "python": "3.11",
            "versions": {"tessera": "0.1.0"},
            "onnxruntime": {"tessera": "libonnxruntime.so 00"},
        }
    )
    rows = [
        row("tessera", 1000, 25, 100),
        row("triton, delay 0", 100, 250, 1000),
        row("mlserver, no batching", 10, 900, 9000),
    ]
    rows.append(ClosedLoop("mlserver, no batching", "-", "-", 0, missing="it ended"))
    made.save(outcome(rows, {"tessera": 150.0, "triton, delay 0": 100.0}))
    return made


def test_the_document_contains_ratios_the_best_setting_and_missing_figures(results: Results, tmp_path: Path):
    document.write(results, tmp_path)
    text = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| wrk, HTTP, binary | 8 | triton, delay 0 | 100 | 0.10 | 0.5 | 1 | 10.00 | 250 | 10.00 | 0 |" in text
    assert "| `identity`, 5 ms | triton, delay 0 **(best tuned)** | 100.0 | 0.67 | - | 800 | 99.50% | 4.5 |" in text
    assert "mlserver, no batching is missing: it ended" in text
    assert "150 / 100 per second = 1.50x | met" in text
    assert "other programs at most 1.0% of a core" in text
    assert "No peer is better in any of the 5 figures" in text
    for name in ("capacity.svg", "latency.svg"):
        assert f"benchmarks/{name}" in text
        ElementTree.parse(tmp_path / "docs" / "benchmarks" / name)


def test_results_read_back_what_was_saved(results: Results):
    read = results.outcome("identity")
    assert read is not None
    assert read.closed_loop[1].p99_us == 1000
    assert read.capacity[0].rate == 150.0
    assert results.outcome("magika") is None


def test_without_data_there_is_no_plot():
    assert plots.capacity_bars([outcome([])]) is None
    assert plots.latency_percentiles(outcome([]), "wrk", 8, {}) is None


def report(rate: float, late_from: str | None = None, attainment: float = 0.991) -> dict:
    return {
        "capacity": {"rate": rate, "scale": 1.0, "attainment": 0.991, "settled": True, "trials": [{}, {}]},
        "total": {
            "offered": 500,
            "offered_rate": 200.0,
            "attainment": attainment,
            "latency": {"p99_ms": 39.5},
            "failed": {},
        },
        "client": {"late_from": late_from},
    }


def test_a_report_of_the_load_generator_gives_rate_attainment_and_p99():
    found = capacity.read(report(210.5), 40.0)
    assert (found.rate, found.attainment, found.p99_ms, found.trials, found.offered) == (210.5, 0.991, 39.5, 2, 500)
    assert (found.missing, found.note) == ("", "")


def test_without_a_rate_that_held_there_is_no_figure():
    assert capacity.read(report(0.0), 40.0).missing == "no rate held (too many late or refused)"


def test_a_search_that_was_cut_short_gives_the_rate_that_held():
    held, lost = report(0.0), report(0.0, attainment=0.5)
    held["capacity"] = lost["capacity"] = None
    assert (capacity.read(held, 40.0).rate, capacity.read(held, 40.0).note) == (200.0, "search cut short")
    assert capacity.read(lost, 40.0).missing == "no rate held (too many late or refused)"


def test_a_late_client_is_noted():
    assert capacity.read(report(1.0, "2026-01-01T00:00:00Z"), 40.0).note == "client late"
