"""The agent of a node and a real server: plans come into force, and stay when the API server is away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fixtures.client import Client, ask
from fixtures.fleet import Agent, Leader
from fixtures.kubernetes import GROUP, ApiServer, condition, model, plan
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

PLAN = f"{GROUP}/nodeplans/n1"
MODELS = ("first", "second", "third")
ROW = [1.0, 2.0, 3.0, 4.0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tessera]:
    repository = tmp_path / "repository"
    for name in MODELS:
        echo(1_000).place(repository, name)
    with Tessera(repository, options=["--load-mode", "explicit"]) as server:
        yield server


def ready(server: Tessera) -> set[str]:
    status, rows = ask(server, "POST", "/v2/repository/index", b'{"ready": true}')
    assert status == 200, rows
    return {row["name"] for row in rows}


def start(api: ApiServer, server: Tessera, folder: Path, *options: str) -> Agent:
    return Agent(api, "n1", str(server.announced["admin"]), folder / "state", *options)


def in_force(api: ApiServer, models: set[str], epoch: int) -> None:
    """Wait until the node reports exactly these models of this epoch."""

    def holds() -> bool:
        status, found = api.call("GET", PLAN)
        reported = found.get("status", {})
        return (
            status == 200
            and set(reported.get("ready", [])) == models
            and reported["observedEpoch"] == epoch
            and reported["observedGeneration"] == found["metadata"]["generation"]
            and condition(found, "Ready")["status"] == "True"
        )

    until(holds, lambda: f"{models} are in force: {api.call('GET', PLAN)[1].get('status')}", 30)


def test_a_plan_comes_into_force_and_an_older_one_does_not(api: ApiServer, server: Tessera, tmp_path: Path) -> None:
    with start(api, server, tmp_path, "--label", "zone=a") as agent:
        until(lambda: condition(api.call("GET", PLAN)[1], "Ready").get("reason") == "NoPlan", "the node registers")
        assert api.get(PLAN)["metadata"]["labels"] == {"zone": "a"}
        assert api.apply(f"{GROUP}/nodeplans", plan("n1", 3, ["first", "second"]), manager="tessera-fleet")[0] == 200
        in_force(api, {"first", "second"}, 3)
        assert ready(server) == {"first", "second"}
        assert api.get(PLAN)["status"]["devices"], "devices are reported"
        assert api.apply(f"{GROUP}/nodeplans", plan("n1", 4, ["second", "third"]), manager="tessera-fleet")[0] == 200
        in_force(api, {"second", "third"}, 4)
        assert ready(server) == {"second", "third"}
        log = agent.log()
        assert log.index("load model=\"third\"") < log.index("unload model=\"first\""), "loaded before it is unloaded"
        # Someone deletes the resource, so that the API server's rule knows no epoch, and an old leader writes.
        assert api.call("DELETE", PLAN)[0] == 200
        assert api.apply(f"{GROUP}/nodeplans", plan("n1", 3, ["first"]), manager="tessera-fleet")[0] in (200, 201)
        until(lambda: condition(api.get(PLAN), "Accepted").get("reason") == "OldEpoch", "the plan is refused")
        assert api.get(PLAN)["status"]["observedEpoch"] == 4
        assert ready(server) == {"second", "third"}
        assert agent.metric("tessera_fleet_agent_refused_plans_total") == 1


def test_a_model_that_cannot_be_loaded_is_reported_and_tried_again(
    api: ApiServer, server: Tessera, tmp_path: Path
) -> None:
    with start(api, server, tmp_path):
        assert api.apply(f"{GROUP}/nodeplans", plan("n1", 1, ["first", "late"]), manager="tessera-fleet")[0] in (200, 201)
        until(lambda: api.get(PLAN).get("status", {}).get("refusals"), "the refusal is reported")
        (refusal,) = api.get(PLAN)["status"]["refusals"]
        assert (refusal["model"], refusal["reason"]) == ("late", "LoadFailed") and "late" in refusal["message"], refusal
        assert condition(api.get(PLAN), "Ready")["reason"] == "LoadFailed"
        until(lambda: ready(server) == {"first"}, "the other model is ready")
        echo(1_000).place(tmp_path / "repository", "late")
        in_force(api, {"first", "late"}, 1)
        assert api.get(PLAN)["status"]["refusals"] == []


def test_without_the_api_server_the_plan_stays_and_a_restart_uses_the_disk(
    api: ApiServer, server: Tessera, tmp_path: Path
) -> None:
    with start(api, server, tmp_path) as agent:
        written = api.apply(f"{GROUP}/nodeplans", plan("n1", 2, ["first", "second"]), manager="tessera-fleet")
        assert written[0] in (200, 201), written
        in_force(api, {"first", "second"}, 2)
        api.stop()
        agent.kill()
    client = Client(server)
    assert client.infer("first", [ROW])[0] == 200
    # A server that has lost its models gets them again, from the plan on disk alone.
    assert client.post("/v2/repository/models/first/unload", {})[0] == 200
    with start(api, server, tmp_path) as agent:
        until(lambda: ready(server) == {"first", "second"}, lambda: f"the plan on disk is applied:\n{agent.log()}")
        assert "starts with the plan on disk" in agent.log()
        assert agent.metric("tessera_fleet_agent_epoch") == 2
        until(lambda: agent.metric("tessera_fleet_watch_failures_total") >= 3, "the API server is missed", 40)
        assert ready(server) == {"first", "second"}
        # With the API server back, the gap of the watch is closed by a new list.
        api.start()
        assert api.apply(f"{GROUP}/nodeplans", plan("n1", 3, ["third"]), manager="tessera-fleet")[0] == 200
        in_force(api, {"third"}, 3)
        assert ready(server) == {"third"}


def test_a_leader_and_an_agent_serve_a_model_from_its_resource(
    api: ApiServer, server: Tessera, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        stack.enter_context(Leader(api, "a"))
        stack.enter_context(start(api, server, tmp_path))
        assert api.apply(f"{GROUP}/models", model("first"))[0] == 201
        path = f"{GROUP}/models/first"
        ready = lambda: condition(api.get(path), "Ready")  # noqa: E731
        took = until(lambda: ready().get("status") == "True", lambda: f"the model is ready: {ready()}", 40)
        print(f"from the resource to a ready model, the first election included: {took:.2f} s")
        assert Client(server).infer("first", [ROW])[0] == 200
        assert api.call("DELETE", path)[0] == 200
        until(lambda: api.get(PLAN)["status"]["ready"] == [], "the model is unloaded", 40)


def test_files_come_from_the_source_of_a_model_and_change_with_its_digest(
    api: ApiServer, server: Tessera, tmp_path: Path
) -> None:
    store, path = tmp_path / "store", f"{GROUP}/models/sourced"
    echo(1_000).place(store, "sourced")

    def source() -> dict[str, str]:
        # As docs/fleet-kubernetes.md says.
        lines = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"
        digest = subprocess.run(lines, shell=True, cwd=store / "sourced", check=True, capture_output=True, text=True)
        return {"uri": f"file://{store}/sourced", "digest": f"sha256:{digest.stdout.split()[0]}"}

    def version() -> str | None:
        status, answer, _ = Client(server).infer("sourced", [ROW])
        return answer["model_version"] if status == 200 else None

    repository = str(tmp_path / "repository")
    with Leader(api, "a"), start(api, server, tmp_path, "--repository", repository):
        assert api.apply(f"{GROUP}/models", model("sourced", source=source()))[0] == 201
        until(lambda: version() == "1", lambda: f"it serves: {api.call('GET', PLAN)}", 40)
        (tmp_path / "store" / "sourced" / "1").rename(tmp_path / "store" / "sourced" / "2")
        wrong = {**source(), "digest": "sha256:" + "0" * 64}
        assert api.apply(f"{GROUP}/models", model("sourced", source=wrong))[0] == 200
        refusals = lambda: api.get(PLAN)["status"].get("refusals", [])  # noqa: E731
        until(refusals, "the refusal is reported", 40)
        assert refusals()[0]["message"].startswith("source.digest: the files at file:///"), refusals()
        assert version() == "1", "what was there serves on"
        assert api.apply(f"{GROUP}/models", model("sourced", source=source()))[0] == 200
        until(lambda: version() == "2", lambda: f"the new files serve: {api.get(PLAN)}", 40)
        until(lambda: not refusals(), lambda: f"no refusal is left: {refusals()}", 40)
    # A server and an agent that start again have the files in place.
    with Tessera(Path(repository), options=["--load-mode", "explicit"]) as again:
        with start(api, again, tmp_path, "--repository", repository):
            until(lambda: "sourced" in ready(again), "the stored plan is in force", 30)
        status, answer, _ = Client(again).infer("sourced", [ROW])
        assert (status, answer["model_version"]) == (200, "2")
