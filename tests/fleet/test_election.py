"""One leader at a time, whatever happens to it."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

import pytest

from fixtures.fleet import LEASE, RENEW, RETRY, Leader
from fixtures.kubernetes import GROUP, LEASES, ApiServer, condition, model, plan, pool
from fixtures.wait import until

LEASE_PATH = f"{LEASES}/tessera-fleet"
# Of a busy machine with two cores.
SLACK = 1.5


def leading(*leaders: Leader) -> Leader:
    """The only leader, as soon as there is one."""
    until(lambda: any(leader.leads() for leader in leaders), "one leads", LEASE + RETRY + 20)
    (found,) = [leader for leader in leaders if leader.leads()]
    return found


def epoch(api: ApiServer) -> int:
    return int(api.get(LEASE_PATH)["metadata"]["annotations"]["tessera.dev/epoch"])


def planned_epoch(api: ApiServer, node: str) -> int:
    return api.get(f"{GROUP}/nodeplans/{node}")["spec"]["epoch"]


def in_force(api: ApiServer, least: int) -> None:
    """Wait until every plan has the epoch of the Lease. A candidate that lost a race skips an epoch, so it may be higher."""
    nodes = ("n1", "n2")
    until(lambda: {planned_epoch(api, node) for node in nodes} == {epoch(api)}, "plans of the new epoch", 20)
    assert epoch(api) >= least


def place(api: ApiServer) -> None:
    """Two nodes without servers, a model and a pool."""
    for node in ("n1", "n2"):
        assert api.apply(f"{GROUP}/nodeplans", plan(node, 0, []), manager="tessera-agent")[0] == 201
    assert api.apply(f"{GROUP}/models", model("digits"))[0] == 201
    assert api.apply(f"{GROUP}/servingpools", pool())[0] == 201


def test_a_killed_leader_is_replaced_within_lease_duration_and_retry(api: ApiServer) -> None:
    place(api)
    with ExitStack() as stack:
        pair = [stack.enter_context(Leader(api, name)) for name in ("a", "b")]
        first = leading(*pair)
        in_force(api, 1)
        (second,) = [leader for leader in pair if leader is not first]
        first.kill()
        took = until(second.leads, "the standby leads", LEASE + RETRY + SLACK)
        print(f"kill -9 of the leader: {took:.2f} s until the standby leads")
        assert api.get(LEASE_PATH)["spec"]["holderIdentity"] == second.identity
        in_force(api, 2)


def test_a_stopped_leader_hands_over_at_once(api: ApiServer) -> None:
    place(api)
    with ExitStack() as stack:
        pair = [stack.enter_context(Leader(api, name)) for name in ("a", "b")]
        first = leading(*pair)
        (second,) = [leader for leader in pair if leader is not first]
        assert first.is_healthy() and second.is_healthy()
        assert first.stop() == 0, "a clean stop"
        took = until(second.leads, "the standby leads", RETRY + SLACK)
        print(f"SIGTERM of the leader: {took:.2f} s until the standby leads")


def test_a_paused_leader_does_not_lead_when_it_continues(api: ApiServer) -> None:
    place(api)
    with ExitStack() as stack:
        pair = [stack.enter_context(Leader(api, name)) for name in ("a", "b")]
        first = leading(*pair)
        in_force(api, 1)
        (second,) = [leader for leader in pair if leader is not first]
        first.send(signal.SIGSTOP)
        until(second.leads, "the standby leads", LEASE + RETRY + SLACK)
        in_force(api, 2)
        first.send(signal.SIGCONT)
        until(lambda: not first.leads(), "the old leader steps down", 5)
        # What it may still have had in flight is refused.
        status, answer = api.apply(f"{GROUP}/nodeplans", plan("n1", 1, ["late"]), manager="tessera-fleet")
        assert status == 422 and "the writer was replaced as leader" in answer["message"], answer
        assert api.apply(f"{GROUP}/models", model("squeezenet"))[0] == 201
        names = {"digits", "squeezenet"}

        def models() -> set[str]:
            plans = [api.get(f"{GROUP}/nodeplans/{node}")["spec"]["models"] for node in ("n1", "n2")]
            return {planned["model"] for models in plans for planned in models}

        until(lambda: models() == names, "the new leader plans", 10)
        in_force(api, 2)
        assert second.leads() and not first.leads()


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["alone", "with-standby"])
def test_a_deleted_lease_never_makes_two_leaders_and_epochs_grow(api: ApiServer, names: tuple[str, ...]) -> None:
    place(api)
    with ExitStack() as stack:
        candidates = [stack.enter_context(Leader(api, name)) for name in names]
        leading(*candidates)
        in_force(api, 1)
        before = epoch(api)
        assert api.call("DELETE", LEASE_PATH)[0] == 200
        until(lambda: not any(leader.leads() for leader in candidates), "the leader steps down", RENEW + SLACK)
        until(lambda: any(leader.leads() for leader in candidates), "one leads again", LEASE + 2 * RETRY + 2 * SLACK)
        assert sum(leader.leads() for leader in candidates) == 1
        assert epoch(api) > before


def test_without_the_api_server_a_leader_steps_down_and_leads_again_afterwards(api: ApiServer) -> None:
    place(api)
    with Leader(api, "a") as leader:
        leading(leader)
        api.stop()
        until(lambda: not leader.leads(), "it steps down without the API server", RENEW + SLACK)
        assert leader.is_healthy()
        api.start()
        until(leader.leads, "it leads again", 20)
        in_force(api, 2)


def test_status_says_what_nodes_report_and_for_which_generation(api: ApiServer) -> None:
    place(api)
    assert api.apply(f"{GROUP}/models", model("wide", minReplicas=3))[0] == 201
    with Leader(api, "a") as leader:
        leading(leader)

        def reason(path: str, expected: str) -> None:
            found = lambda: condition(api.get(f"{GROUP}/{path}"), "Ready")  # noqa: E731
            until(lambda: found().get("reason") == expected, lambda: f"{path} is {expected}: {found()}", 20)

        reason("models/digits", "Loading")
        reason("models/wide", "NotPlaced")
        reason("servingpools/all", "Applying")
        wide = api.get(f"{GROUP}/models/wide")
        assert condition(wide, "Ready")["message"] == "minReplicas is 3, and 2 nodes fit its constraints"
        assert wide["status"]["observedGeneration"] == wide["metadata"]["generation"] == 1
        # The node with the model says that it is ready.
        nodes = [api.get(f"{GROUP}/nodeplans/{node}") for node in ("n1", "n2")]
        (node,) = [
            node for node in nodes if "digits" in [planned["model"] for planned in node["spec"]["models"]]
        ]
        name = node["metadata"]["name"]
        status = plan(name, 0, []) | {"status": {"observedEpoch": 1, "ready": ["digits"], "devices": [{"name": "cpu"}]}}
        del status["spec"]
        assert api.apply(f"{GROUP}/nodeplans", status, manager="tessera-agent", subresource="status")[0] == 200
        reason("models/digits", "Ready")
        digits = api.get(f"{GROUP}/models/digits")["status"]
        assert (digits["copiesReady"], digits["copiesWanted"]) == (1, 1)
        until(lambda: api.get(f"{GROUP}/servingpools/all")["status"]["replicas"] == 1, "the device is counted", 20)
        all_nodes = api.get(f"{GROUP}/servingpools/all")["status"]
        assert (all_nodes["nodes"], all_nodes["leader"], all_nodes["epoch"]) == (2, "a", 1)


def test_an_idle_fleet_writes_nothing_but_its_lease(api: ApiServer) -> None:
    place(api)
    with Leader(api, "a") as leader:
        leading(leader)
        until(lambda: api.get(f"{GROUP}/servingpools/all").get("status"), "status is written", 20)
        versions = lambda: [  # noqa: E731
            api.get(f"{GROUP}/{path}")["metadata"]["resourceVersion"]
            for path in ("nodeplans/n1", "nodeplans/n2", "models/digits", "servingpools/all")
        ]
        last = [versions(), time.monotonic()]

        def quiet() -> bool:
            now = versions()
            if now != last[0]:
                last[:] = [now, time.monotonic()]
            return time.monotonic() - last[1] > 5

        until(quiet, "nothing was written for 5 s", 25)
