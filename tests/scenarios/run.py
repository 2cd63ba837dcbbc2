#!/usr/bin/env python3
"""Sends the same requests to Tessera and to a real Triton, and explains every difference.

Each scenario in *.yaml contains a request and the expected answer of Tessera. With an oracle, its answer is compared
too. A difference that deviations.yaml does not list fails, and so does a listed one that no longer occurs.

    TESSERA_BIN=... scenarios/run.py --oracle-venv DIR    starts both servers
    scenarios/run.py --base-url H:P --grpc-url H:P [--oracle-url H:P --oracle-grpc-url H:P]

Exit codes: 0 all as expected, 1 not all, 3 the oracle cannot run on this machine (the reason is printed).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from scenarios import answer, request  # noqa: E402

CANNOT_RUN = 3


def read_scenarios(only: str | None) -> list[dict]:
    scenarios = []
    for path in sorted(HERE.glob("*.yaml")):
        if path.name == "deviations.yaml":
            continue
        for scenario in yaml.safe_load(path.read_text())["scenarios"]:
            scenario["name"] = f"{path.stem}/{scenario['name']}"
            scenarios.append(scenario)
    names = [scenario["name"] for scenario in scenarios]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SystemExit(f"scenario names used twice: {', '.join(sorted(repeated))}")
    return [scenario for scenario in scenarios if only is None or only in scenario["name"]]


def read_deviations() -> dict[str, str]:
    """scenario -> reason; a scenario deviates at most once, with all that differs in it."""
    listed = {}
    for group in yaml.safe_load((HERE / "deviations.yaml").read_text())["deviations"]:
        for name in group["scenarios"]:
            if name in listed:
                raise SystemExit(f"deviations.yaml lists {name} twice")
            listed[name] = group["reason"]
    return listed


def problems_of(scenario: dict, ours: answer.Answer, oracle: answer.Answer | None, listed: dict[str, str]) -> list[str]:
    """Unmet expectations of this scenario, or an empty list."""
    problems = [f"expected {text}" for text in answer.unmet(scenario["expect"], ours)]
    if oracle is None:
        return problems
    different = answer.differences(ours, oracle, set(scenario.get("ignore", [])))
    if different and scenario["name"] not in listed:
        problems += [f"differs from the oracle: {text}" for text in different]
    if not different and scenario["name"] in listed:
        problems.append(f"listed in deviations.yaml, but answers are the same now ({listed[scenario['name']]})")
    return problems


def run(scenarios: list[dict], targets: list[request.Target], complete: bool) -> int:
    listed = read_deviations()
    unknown = set(listed) - {scenario["name"] for scenario in scenarios}
    failures, deviations = 0, 0
    if complete and unknown:
        print(f"FAIL deviations.yaml names scenarios that do not exist: {', '.join(sorted(unknown))}")
        failures += 1
    for scenario in scenarios:
        answers = [target.ask(scenario) for target in targets]
        oracle = answers[1] if len(answers) > 1 else None
        problems = problems_of(scenario, answers[0], oracle, listed)
        deviations += oracle is not None and scenario["name"] in listed
        if problems:
            failures += 1
            print(f"FAIL {scenario['name']}")
            for problem in problems:
                print(f"     {problem}")
            for who, found in zip(("tessera", "oracle"), answers):
                print(f"     {who}: {found}")
    against = f"{deviations} listed deviations from the oracle" if len(targets) > 1 else "no oracle"
    print(f"scenarios: {len(scenarios) - failures} passed, {failures} failed; {against}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="host:port of a running Tessera; left out, TESSERA_BIN is started")
    parser.add_argument("--grpc-url")
    parser.add_argument("--oracle-url", help="host:port of a running Triton with the same models")
    parser.add_argument("--oracle-grpc-url")
    parser.add_argument("--oracle-venv", type=Path, help="start Triton from this environment")
    parser.add_argument("--only", help="run the scenarios whose name contains this")
    arguments = parser.parse_args()
    scenarios = read_scenarios(arguments.only)
    with contextlib.ExitStack() as stack:
        try:
            targets = start(arguments, stack)
        except answer.CannotRun as reason:
            print(f"scenarios: the oracle cannot run here: {reason}")
            return CANNOT_RUN
        return run(scenarios, targets, complete=arguments.only is None)


def start(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> list[request.Target]:
    from fixtures import models
    from fixtures.tessera import Tessera
    from oracle import triton

    repository = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scenarios-")))
    # The Python backend has no numpy type for it.
    models.build(repository, without=["identity_bf16"])
    if arguments.base_url:
        ours = request.Target(arguments.base_url, arguments.grpc_url)
    else:
        started = stack.enter_context(Tessera(repository, config=models.settings(repository, "ort"))).wait_ready()
        ours = request.Target(started.http_address, started.grpc_address)
    if arguments.oracle_url:
        return [ours, request.Target(arguments.oracle_url, arguments.oracle_grpc_url)]
    if not arguments.oracle_venv:
        return [ours]
    try:
        wrapped = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oracle-")))
        triton.wrap(repository, wrapped)
        running = stack.enter_context(triton.Triton.on_free_ports(arguments.oracle_venv, wrapped))
        running.wait_ready()
    except triton.CannotRun as reason:
        raise answer.CannotRun(str(reason)) from reason
    return [ours, request.Target(running.http_address, running.grpc_address)]


if __name__ == "__main__":
    sys.exit(main())
