"""`tessera serve --node`: one command for a server and its agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.kubernetes import GROUP, ApiServer, plan
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

PLANS = f"{GROUP}/nodeplans"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        echo(1_000).place(tmp_path / "repository", name)
    return tmp_path / "repository"


def start(api: ApiServer, repository: Path) -> Tessera:
    state = repository.parent / "state"
    config = f'[fleet]\nnamespace = "default"\nstate = "{state}"\nagent_metrics = "127.0.0.1:0"\n'
    return Tessera(repository, config, ["--node", "n1"], environment={"KUBECONFIG": api.kubeconfig})


@pytest.fixture
def server(api: ApiServer, repository: Path) -> Iterator[Tessera]:
    with start(api, repository) as server:
        yield server


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def serves(api: ApiServer, models: set[str]) -> None:
    def holds() -> bool:
        status, found = api.call("GET", f"{PLANS}/n1")
        return status == 200 and set(found.get("status", {}).get("ready", [])) == models

    until(holds, lambda: f"{models} are ready: {api.call('GET', f'{PLANS}/n1')}", 30)


def test_the_server_applies_its_plan_and_its_agent_ends_with_it(api: ApiServer, server: Tessera) -> None:
    serves(api, set())
    assert api.apply(PLANS, plan("n1", 1, ["first"]))[0] in (200, 201)
    serves(api, {"first"})
    (agent,) = server.children()
    assert server.metric("tessera_fleet_agent_running") == 1
    assert server.stop() == 0
    assert not is_running(agent)


def test_an_agent_that_ends_is_started_again(api: ApiServer, server: Tessera) -> None:
    serves(api, set())
    (first,) = server.children()
    os.kill(first, signal.SIGKILL)
    until(lambda: server.metric("tessera_fleet_agent_restarts_total") == 1, "the agent is started again", 20)
    until(lambda: len(server.children()) == 1, "another agent runs", 20)
    assert server.children() != {first}
    assert api.apply(PLANS, plan("n1", 1, ["second"]))[0] in (200, 201)
    serves(api, {"second"})


def test_an_agent_does_not_outlive_a_killed_server(api: ApiServer, repository: Path) -> None:
    server = start(api, repository)
    serves(api, set())
    (agent,) = server.children()
    server.process.kill()
    server.process.wait(10)
    until(lambda: not is_running(agent), "the agent has ended", 20)
