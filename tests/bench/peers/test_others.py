"""Whether the benchmark notices other programs, and what it takes as the limit of queueing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import limit, others
from bench.peers.record import Results

BURN = """
import time
while time.process_time() < 0.3:
    pass
"""


def test_a_program_that_is_not_the_benchmarks_own_is_noticed():
    watch = others.Watch()
    # `setsid --fork` leaves the benchmark's family; the pipe ends with the program.
    command = ["setsid", "--fork", sys.executable, "-c", BURN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        started.communicate(timeout=60)
    burnt = watch.use()
    assert burnt.share > 0
    assert "of a core" in str(burnt)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, str]]:
    """Processes that the test changes: 10 is the benchmark, 11 its server, 20 and 21 others."""
    table = {10: (100, "bench"), 11: (500, "server"), 20: (1000, "cargo"), 21: (40, "rustc")}
    monkeypatch.setattr(others, "_ticks", lambda: dict(table))
    monkeypatch.setattr(others.process, "family", lambda _: [10, 11])
    return table


def test_only_other_programs_count_and_a_child_that_ended_counts_once(processes: dict[int, tuple[int, str]]):
    watch = others.Watch()
    processes[11] = (900, "server")
    assert watch.use().share == 0
    # It used 60 more and ended: all of its 100 are its parent's now.
    del processes[21]
    processes[20] = (1100, "cargo")
    watch._since -= 10
    used = watch.use()
    assert used.share == pytest.approx(60 / others.process.TICK / 10, rel=0.01)
    assert used.most == "cargo"


def test_a_disturbed_measurement_is_taken_again_and_a_busy_machine_gives_none(monkeypatch: pytest.MonkeyPatch):
    uses = iter([others.Use(0.0, "none"), others.Use(0.2, "rustc"), others.Use(0.0, "none"), others.Use(0.01, "sshd")])
    monkeypatch.setattr(others.Watch, "use", lambda _: next(uses))
    monkeypatch.setattr(others, "INTERVAL_S", 0)
    said: list[str] = []
    assert others.alone(lambda: "figure", said.append) == ("figure", 0.01)
    assert said == ["other programs used 20% of a core, most of it `rustc`: measured again"]
    monkeypatch.setattr(others.Watch, "use", lambda _: others.Use(0.5, "rustc"))
    monkeypatch.setattr(others, "QUIET_TIMEOUT_S", 0)
    with pytest.raises(others.NotQuietError, match="50% of a core, most of it `rustc` in each of 3 attempts"):
        others.alone(lambda: "figure", said.append)


def test_batch_times_are_those_of_the_trials_and_never_fall():
    before = {1: (100, 100_000_000)}
    after = {1: (200, 300_000_000), 2: (10, 19_000_000), 4: (2, 1), 8: (50, 500_000_000)}
    assert limit.profile(before, after) == [(1, 2000.0), (2, 2000.0), (8, 10_000.0)]


def test_figures_of_a_model_are_replaced_as_a_whole(tmp_path: Path):
    kept, pending = Results(tmp_path / "kept"), Results(tmp_path / "pending")
    for results, text in ((kept, "old"), (pending, "new")):
        results.keep("magika", f"{text} row", text)
        (results.folder / "magika.json").write_text(text)
    kept.take(pending, "magika")
    assert [path.name for path in (kept.folder / "magika").iterdir()] == ["new-row.txt"]
    assert (kept.folder / "magika.json").read_text() == "new"
