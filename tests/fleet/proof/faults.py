"""The faults, one function each. Each causes its fault under load, repairs what it broke, and says when and what it saw."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fixtures.kubernetes import GROUP, plan
from fixtures.wait import until
from fleet.proof.load import Load
from fleet.proof.models import SINGLE
from fleet.proof.node import Node
from fleet.proof.world import FixedPicker, World, every


@dataclass
class Seen:
    """A fault that happened. Times are of the monotonic clock."""

    at: float
    # Seconds until it was repaired, for the simulation.
    lasted: float
    facts: dict[str, float | str] = field(default_factory=dict)
    # From when on what failed took no request. A request that was sent earlier, and lost, may have been inside.
    down: float = 0.0


def passes(seconds: float) -> None:
    """Let a fault last for this time."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, "time passes", seconds + 5)


def _led_by(world: World, other: str, epoch: int, at: float) -> dict[str, float]:
    """Wait for the next leader and its plans; seconds from the fault."""
    leader = world.leaders[other]
    until(every(leader.leads), lambda: f"the standby leads:\n{leader.log()[-2000:]}", 30)
    leads = time.monotonic() - at
    until(every(lambda: world.has_epoch(epoch + 1)), "its epoch is in all plans", 20)
    return {"standby leads s": leads, "epoch in all plans s": time.monotonic() - at}


def _pair(world: World) -> tuple[str, str]:
    """The leader and the standby."""
    first = world.leader()
    assert first is not None
    (second,) = [name for name in world.leaders if name != first]
    return first, second


def nothing(_: World, __: Load) -> Seen:
    """The noise of this machine."""
    at = time.monotonic()
    passes(10)
    return Seen(at, 10.0)


def leader_killed(world: World, _: Load) -> Seen:
    """kill -9 of the leader."""
    first, second = _pair(world)
    epoch, at = world.epoch(), time.monotonic()
    world.leaders[first].kill()
    facts = _led_by(world, second, epoch, at)
    world.start_leader(first, world.times)
    return Seen(at, facts["epoch in all plans s"], dict(facts))


def leader_resumed(world: World, _: Load) -> Seen:
    """SIGSTOP of the leader until another one leads, then SIGCONT: its plans count no more."""
    first, second = _pair(world)
    old, epoch, at = world.leaders[first], world.epoch(), time.monotonic()
    old.send(signal.SIGSTOP)
    facts: dict[str, float | str] = dict(_led_by(world, second, epoch, at))
    old.send(signal.SIGCONT)
    lasted = time.monotonic() - at
    until(every(lambda: not old.leads()), "the old leader steps down", 10)
    # What it may still have in flight. The API server refuses it, and so does a node when the API server knows no better.
    name, found = next(iter(world.plans().items()))
    models = [entry["model"] for entry in found["spec"]["models"]]
    status, answer = world.api.apply(f"{GROUP}/nodeplans", plan(name, epoch, models), manager="tessera-fleet")
    assert status == 422 and "replaced as leader" in answer["message"], answer
    facts["API server"] = f"refuses epoch {epoch}"
    assert world.api.call("DELETE", f"{GROUP}/nodeplans/{name}")[0] == 200
    status, answer = world.api.apply(f"{GROUP}/nodeplans", plan(name, epoch, models), manager="tessera-fleet")
    assert status in (200, 201), answer
    agent = world.nodes[name].agent
    until(lambda: "plan refused" in agent.log(), lambda: f"the node refuses it:\n{agent.log()}", 20)
    facts["node"] = f"refuses epoch {epoch}"
    until(every(lambda: world.has_epoch(epoch + 1)), "plans are those of the new leader", 30)
    assert world.leader() == second
    return Seen(at, lasted, facts)


def node_killed(world: World, load: Load) -> Seen:
    """kill -9 of the node that has the only copy of a model, at a moment when it has requests.

    Kubernetes calls it not ready at once, which really takes up to 40 s.
    """
    (node,) = world.nodes_of(SINGLE)
    until(lambda: world.open_requests(node) >= 2, f"{node.name} has requests", 30)
    at = time.monotonic()
    node.kill()
    down = time.monotonic()
    world.mark(node.name, ready=False)
    marked = time.monotonic() - at
    others = [other for other in world.nodes.values() if other is not node]

    def loaded() -> list[Node]:
        return [other for other in others if SINGLE in other.ready_models()]

    until(every(loaded), f"{SINGLE} is loaded elsewhere", 60)
    facts: dict[str, float | str] = {
        "Kubernetes says so s": marked,
        "the cold model is loaded elsewhere s": time.monotonic() - at,
    }
    load.wait_clean(at, 60)
    lasted = time.monotonic() - at
    begun = time.monotonic()
    world.start_node(node)
    world.mark(node.name, ready=True)
    world.wait_healthy()
    facts["started again, until its plan is in force s"] = time.monotonic() - begun
    return Seen(at, lasted, facts, down)


def picker_frozen(world: World, _: Load) -> Seen:
    """SIGSTOP of a picker for 10 s, then SIGCONT."""
    at = time.monotonic()
    world.pickers[0].send(signal.SIGSTOP)
    passes(10)
    world.pickers[0].send(signal.SIGCONT)
    return Seen(at, 10.0)


def picker_killed(world: World, load: Load) -> Seen:
    """kill -9 of a picker."""
    at = time.monotonic()
    world.pickers[1].kill()
    passes(5)
    world.pickers[1] = FixedPicker(world.api, world.models, 1, len(world.pickers))
    return Seen(at, 5.0)


def api_killed(seconds: float) -> Callable[[World, Load], Seen]:
    """kill -9 of the API server and its etcd, which start again with what they had after some time."""

    def fault(world: World, _: Load) -> Seen:
        epoch, at = world.epoch(), time.monotonic()
        os.kill(int((Path(world.api.kubeconfig).parent / "pid").read_text()), signal.SIGKILL)
        passes(seconds)
        world.api.start()
        back = time.monotonic()
        until(every(world.leader), "one leads again", 40)
        leads = time.monotonic() - back
        until(every(lambda: world.has_epoch(epoch + 1)), "its epoch is in all plans", 40)
        facts = {"away for s": back - at, "one leads, after its return s": leads}
        return Seen(at, back - at, {**facts, "epoch in all plans, after its return s": time.monotonic() - back})

    return fault


def node_partitioned(world: World, load: Load) -> Seen:
    """The cable of a node is taken out, and put in again when the rest of the fleet works."""
    node = next(node for node in world.nodes.values() if node not in world.nodes_of(SINGLE))
    at = time.monotonic()
    world.network.connect(node.name, False)
    down = time.monotonic()

    def heard() -> list[float]:
        return [picker.metric("tessera_picker_nodes", state="connected") for picker in world.pickers]

    until(every(lambda: max(heard()) < len(world.nodes)), "the pickers notice", 60)
    noticed = time.monotonic() - at
    load.wait_clean(time.monotonic(), 60)
    lasted = time.monotonic() - at
    world.network.connect(node.name, True)
    begun = time.monotonic()
    world.wait_healthy()
    facts = {"pickers notice s": noticed, "connected again, until all is as before s": time.monotonic() - begun}
    return Seen(at, lasted, dict(facts), down)


def rolling_restart(world: World, _: Load) -> Seen:
    """SIGTERM to one node after the other, each ready again before the next."""
    at = time.monotonic()
    for node in world.nodes.values():
        code = node.drain()
        assert code == 0, f"{node.name} ended with {code}: {node.log()[-2000:]}"
        world.start_node(node)
        world.wait_healthy()
    return Seen(at, time.monotonic() - at, {"for all nodes s": time.monotonic() - at})
