"""The leader plans by rates and batch times: nodes for load, spares for failures, and few moves at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fixtures.client import Client
from fixtures.fleet import LEASE, RETRY, Agent, Process
from fixtures.kubernetes import GROUP, ApiServer, condition, model, pool
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

NODES = "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICE = "tessera-nodes"
ROW = [1.0, 2.0, 3.0, 4.0]
# A batch of one row takes 20 ms: 50 rows a second on one lane.
BATCH_MS = 20
PROFILE = {"fixed": f"{BATCH_MS}ms", "perRow": "0s"}


class Leader(Process):
    """A leader that watches nodes and follows the servers of a Service."""

    def __init__(self, api: ApiServer) -> None:
        times = ["--lease-duration", f"{LEASE:.0f}s", "--renew-deadline", "2s", "--retry-period", f"{RETRY * 1e3:.0f}ms"]
        super().__init__(api, ["fleet", *times, "--identity", "a", "--replan-min", "200ms", "--service", SERVICE])


@dataclass
class World:
    """Servers with their agents, as nodes of a fleet."""

    api: ApiServer
    folder: Path
    stack: ExitStack
    servers: dict[str, Tessera] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)

    def node(self, name: str, models: tuple[str, ...]) -> None:
        """Start a server with one lane, its agent, and tell Kubernetes of it."""
        repository = self.folder / name
        for each in models:
            echo(alpha_us=BATCH_MS * 1_000).place(repository, each)
        server = self.stack.enter_context(Tessera(repository, "[lanes]\ncount = 1\n", options=["--load-mode", "explicit"]))
        self.servers[name] = server
        self.agents[name] = self.stack.enter_context(
            Agent(self.api, name, str(server.announced["admin"]), self.folder / f"{name}-state")
        )
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        assert self.api.apply(NODES, node)[0] in (200, 201)
        self.is_ready(name, "True")
        ports = [
            {"name": port, "port": int(where.rpartition(":")[2]), "protocol": "TCP"}
            for port, where in (("http", server.http_address), ("grpc", server.grpc_address))
        ]
        labels = {"kubernetes.io/service-name": SERVICE}
        endpoint = {"addresses": ["127.0.0.1"], "nodeName": name, "conditions": {"ready": True, "serving": True}}
        slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
        slices |= {"metadata": {"name": f"{SERVICE}-{name}", "labels": labels}, "ports": ports, "endpoints": [endpoint]}
        assert self.api.apply(SLICES, slices)[0] in (200, 201)

    def is_ready(self, name: str, status: str) -> None:
        """Kubernetes says whether a node works."""
        ready = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [ready]}}
        assert self.api.apply(NODES, node, subresource="status")[0] == 200

    def serving(self, name: str) -> set[str]:
        """Nodes on which a model serves by the plans."""
        plans = {node: self.api.get(f"{GROUP}/nodeplans/{node}")["spec"].get("models", []) for node in self.servers}
        is_serving = lambda planned: planned["model"] == name and planned["role"] == "serving"  # noqa: E731
        return {node for node, models in plans.items() if any(is_serving(planned) for planned in models)}

    def is_served(self, name: str) -> bool:
        """Whether all copies that are wanted are ready."""
        found = self.api.get(f"{GROUP}/models/{name}")
        return condition(found, "Ready").get("status") == "True"

    def pool(self) -> dict:
        """The status of the pool."""
        return self.api.get(f"{GROUP}/servingpools/all").get("status", {})


@pytest.fixture
def world(api: ApiServer, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(api, tmp_path, stack)
        for name in ("n0", "n1", "n2"):
            world.node(name, ("busy", "idle"))
        until(lambda: all(api.call("GET", f"{GROUP}/nodeplans/{name}")[0] == 200 for name in world.servers), "nodes register")
        yield world


def test_a_model_under_load_gets_more_nodes_and_the_pool_says_how_many_devices_are_wanted(world: World) -> None:
    api = world.api
    assert api.apply(f"{GROUP}/servingpools", pool())[0] == 201
    assert api.apply(f"{GROUP}/models", model("busy", objective={"slo": "200ms"}))[0] == 201
    with Leader(api) as leader:
        until(lambda: world.is_served("busy"), lambda: f"the model is ready:\n{leader.log()}", 60)
        (first,) = world.serving("busy")
        assert world.pool()["devicesWanted"] == 1, world.pool()
        assert leader.metric("tessera_fleet_share") == 1.0, "without traffic"
        with Clients(world.servers[first], {"busy": 3}):
            # One lane is busy all the time: with headroom and reserve, that needs more than one node.
            until(lambda: len(world.serving("busy")) >= 2, lambda: f"more nodes: {world.pool()}\n{leader.log()}", 120)
            until(lambda: world.is_served("busy"), "the new copies are ready", 60)
        assert world.pool()["devicesWanted"] >= 2, world.pool()
        sufficient = condition(api.get(f"{GROUP}/servingpools/all"), "Sufficient")
        assert "devices are wanted" in sufficient["message"] and "busy" in sufficient["message"], sufficient
        assert leader.metric("tessera_fleet_devices_wanted") >= 2
        assert leader.metric("tessera_fleet_moves_total") >= 2


def test_models_of_a_node_that_dies_are_served_by_others(world: World) -> None:
    api = world.api
    assert api.apply(f"{GROUP}/servingpools", pool())[0] == 201
    stated = {"rate": 5.0, "profile": PROFILE, "objective": {"slo": "200ms"}, "minReplicas": 2}
    for name in ("busy", "idle"):
        assert api.apply(f"{GROUP}/models", model(name, **stated))[0] == 201
    with Leader(api) as leader:
        until(lambda: all(world.is_served(name) for name in ("busy", "idle")), lambda: leader.log(), 60)
        assert len(world.serving("busy")) == 2
        dead = min(world.serving("busy"))
        world.agents[dead].kill()
        killed = world.servers[dead].process
        killed.kill()
        killed.wait(20)
        killed.returncode = 0  # `stop` expects the exit code of a drain
        world.is_ready(dead, "False")
        others = set(world.servers) - {dead}

        def served() -> bool:
            plans = [api.get(f"{GROUP}/nodeplans/{name}") for name in others]
            return world.serving("busy") >= others and all("busy" in plan["status"]["ready"] for plan in plans)

        took = until(served, lambda: f"two nodes serve it: {world.serving('busy')}\n{leader.log()}", 60)
        print(f"from a node that is not ready to two ready copies again: {took:.2f} s")
        assert all(Client(world.servers[name]).infer("busy", [ROW])[0] == 200 for name in others)
        assert leader.metric("tessera_fleet_nodes", state="lost") == 1


def test_moves_stay_within_the_limit(world: World) -> None:
    api = world.api
    assert api.apply(f"{GROUP}/servingpools", pool(movesPerMinute=1, policy="spread"))[0] == 201
    stated = {"rate": 5.0, "profile": PROFILE, "objective": {"slo": "200ms"}}
    for name in ("busy", "idle"):
        assert api.apply(f"{GROUP}/models", model(name, **stated))[0] == 201
    with Leader(api) as leader:
        until(lambda: all(world.is_served(name) for name in ("busy", "idle")), lambda: leader.log(), 60)
        until(lambda: leader.metric("tessera_fleet_moves_waiting") >= 1, "copies wait", 10)
        # The first copies of the two models, and one more in the first minute.
        assert leader.metric("tessera_fleet_moves_total") <= 3
        until(lambda: leader.metric("tessera_fleet_moves_total") == 4, "one more in the next minute", 90)
