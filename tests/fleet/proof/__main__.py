"""The live proof of a fleet: `tests/run proof`.

Five nodes with emulated devices and their agents, two pickers, a leader and its standby, a real Envoy and a real API server of
Kubernetes, under open-loop load. Each fault of `faults.py` happens under this load, one after the other, with the whole fleet healthy again
in between. Prints a table, next to what `tessera simulate` says about the same faults, and writes the figures as JSON. Exits with 1 if
requests were lost that should not have been.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleet.proof import faults, report
from fleet.proof.load import Load
from fleet.proof.models import SINGLE, read
from fleet.proof.network import enter
from fleet.proof.report import Row
from fleet.proof.simulation import predict
from fleet.proof.world import SHORT_TIMES, World

ROOT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 480.0
# Envoy's count of connections to servers that broke while a request was on them.
BROKEN = "cluster.servers_http.upstream_cx_destroy_remote_with_active_rq"


@dataclass(frozen=True)
class Trial:
    """A fault, and how it is counted."""

    name: str
    fault: Callable[[World, Load], faults.Seen]
    # The part that fails in the simulation. `None`: the simulation has no such fault.
    simulated: str | None = None
    # Leader times; none: the defaults.
    times: tuple[str, ...] = SHORT_TIMES
    # Whether no request may be lost, apart from those inside a killed node.
    has_aim: bool = True
    # Whether the model with one copy is counted in a row of its own.
    splits: bool = False


def trials(short: bool) -> list[Trial]:
    """All faults in order."""
    away = 20 if short else 60
    default_times = [] if short else [Trial("leader killed, default times", faults.leader_killed, "leader = true", ())]
    return [
        *default_times,
        Trial("no fault for 10 s", faults.nothing),
        Trial("leader killed, short times", faults.leader_killed, "leader = true"),
        Trial("old leader resumed", faults.leader_resumed, "leader = true"),
        Trial("node killed", faults.node_killed, "node = 0", splits=True),
        Trial("picker frozen for 10 s", faults.picker_frozen, "picker = 0"),
        Trial("picker killed", faults.picker_killed, "picker = 1"),
        Trial(f"API server killed for {away} s", faults.api_killed(away), "leader = true"),
        Trial("node partitioned", faults.node_partitioned, has_aim=False),
        Trial("rolling restart", faults.rolling_restart, splits=True),
    ]


def run(trial: Trial, world: World, load: Load) -> list[Row]:
    """Cause one fault, wait until all is well again, and count."""
    if world.times != trial.times:
        world.start_leaders(trial.times)
    world.wait_healthy()
    load.wait_clean(time.monotonic(), 30)
    before = world.gateway() | world.picked()
    seen = trial.fault(world, load)
    seen.facts |= {f"afterwards, {part}": took for part, took in world.wait_healthy().items() if took >= 1}
    end = load.wait_clean(time.monotonic(), 30)
    load.wait_settled(end)
    after = world.gateway() | world.picked()
    # A picker that was started again counts from 0.
    counters = {name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)}
    requests = load.since(seen.at, end)
    names = {model.name for model in world.models}
    parts = [names - {SINGLE}, {SINGLE}] if trial.splits else [names]
    rows = []
    for part in parts:
        found = report.row(trial.name, [request for request in requests if request.model in part], seen.at, seen.down)
        if trial.simulated:
            found.simulated = predict(trial.simulated, seen.lasted, end - seen.at, part)
        rows.append(found)
    rows[0].facts, rows[0].counters = seen.facts, counters
    if trial.splits:
        rows[1].fault = f"{trial.name}: the model with one copy"
    return rows


def missed(trial: Trial, rows: list[Row]) -> list[str]:
    """What the rows of a fault show that should not be."""
    lost = sum(row.lost_count() for row in rows)
    broken = rows[0].counters.get(BROKEN, 0) if trial.fault is faults.node_killed else 0
    allowed = min(broken, sum(row.inside for row in rows))
    if trial.has_aim and lost > allowed:
        return [f"{trial.name}: {lost} lost, expected at most {allowed}"]
    return []


def main() -> None:
    """Run everything."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--short", action="store_true", help="the API server is away for 20 s, and leaders have short times only")
    options.add_argument("--only", help="faults whose names have this word")
    options.add_argument("--json", type=Path, default=ROOT / "target" / "proof.json", help="file for the figures")
    arguments = options.parse_args()
    enter("fleet.proof", LIMIT_SECONDS)
    begun = time.monotonic()
    rows: list[Row] = []
    # Until all of them happened.
    problems = ["it did not come to an end"]
    try:
        with World(read()) as world, Load(world.envoy.address, LIMIT_SECONDS) as load:
            print(f"started after {time.monotonic() - begun:.1f} s", flush=True)
            found = []
            for trial in [trial for trial in trials(arguments.short) if (arguments.only or "") in trial.name]:
                added = run(trial, world, load)
                lost = sum(row.lost_count() for row in added)
                print(f"{time.monotonic() - begun:6.1f} s  {trial.name}: {lost} lost", flush=True)
                rows += added
                found += missed(trial, added)
        problems = found
    finally:
        seconds = time.monotonic() - begun
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report.document(rows, seconds, problems), indent=1) + "\n")
        print(f"\n{report.table(rows)}\n\n{seconds:.0f} s in all; figures in {arguments.json}", flush=True)
        for problem in problems:
            print(f"missed: {problem}", flush=True)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
