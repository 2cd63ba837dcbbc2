"""Five nodes with agents, two pickers, a leader and its standby, Envoy and the API server."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fixtures.envoy import Envoy
from fixtures.fleet import Picker, Process
from fixtures.kubernetes import GROUP, LEASES, ApiServer, condition, model, pool
from fixtures.wait import until
from fleet.proof.models import DEVICE, Model, profiles
from fleet.proof.network import Network
from fleet.proof.node import PORTS, Node, Reached

SERVICE = "tessera-nodes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NODES = "/api/v1/nodes"
SHORT_TIMES = ("--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms")
LAME_DUCK = "5s"
DEVICES = 2


# Between two looks at the API server or at metrics, so that looking costs the fleet little.
LOOK_SECONDS = 0.1


def every(condition: Callable[[], object]) -> Callable[[], object]:
    """The condition, evaluated ten times a second."""
    last = [0.0]

    def limited() -> object:
        if time.monotonic() - last[0] < LOOK_SECONDS:
            return False
        last[0] = time.monotonic()
        return condition()

    return limited


class FixedPicker(Picker):
    """A picker at an address that stays the same when it is started again."""

    def __init__(self, api: ApiServer, models: list[Model], number: int, count: int) -> None:
        self._at = self.address_of(number)
        objectives = [word for served in models for word in ("--objective", f"{served.name}={served.slo}")]
        peers = [word for peer in range(count) for word in ("--peer", self.address_of(peer))]
        among = [*peers, "--number", str(number)]
        Process.__init__(self, api, ["pick", "--service", SERVICE, "--listen", self._at, *among, *objectives])

    @staticmethod
    def address_of(number: int) -> str:
        return f"127.0.0.1:{9100 + number}"

    def address(self) -> str:
        return self._at


class World:
    """All processes of the fleet. As a context manager, they are ended at the end."""

    def __init__(self, models: list[Model], nodes: int = 5, pickers: int = 2) -> None:
        self.models = models
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="proof-")))
        self.repository, self.profiles = self.folder / "repository", self.folder / "profiles.jsonl"
        self.profiles.write_text(profiles(models))
        for served in models:
            served.synthetic().place(self.repository, served.name)
        self.nodes: dict[str, Node] = {}
        self.leaders: dict[str, Process] = {}
        self.pickers: list[FixedPicker] = []
        try:
            self._start(nodes, pickers)
        except BaseException:
            self.__exit__(None)
            raise

    def _start(self, nodes: int, pickers: int) -> None:
        self.network = Network()
        self.api = self._stack.enter_context(ApiServer())
        self.api.install()
        self.network.offer(int(self.api.url.rsplit(":", 1)[1]))
        self.reached = Reached(self.api, self.folder)
        for number in range(1, nodes + 1):
            name = f"n{number}"
            node = Node(name, self.network.add(name), self.network.prefix(name))
            self.nodes[name] = node
            self._stack.callback(node.end)
        self._create_objects()
        for node in self.nodes.values():
            self.start_node(node)
        self.start_leaders(SHORT_TIMES)
        for number in range(pickers):
            self.pickers.append(FixedPicker(self.api, self.models, number, pickers))
        addresses = [picker.address() for picker in self.pickers]
        self.wait_planned()
        self.envoy = self._stack.enter_context(Envoy(list(self.nodes.values()), addresses))
        self.wait_healthy()

    def start_node(self, node: Node) -> None:
        """Start the server and the agent of a node, for the first time or again."""
        node.start(self.repository, self._config(node), self.reached)

    def _config(self, node: Node) -> str:
        others = ", ".join(
            f'{{ name = "{other.name}", http = "{other.http_address}", grpc = "{other.grpc_address}" }}'
            for other in self.nodes.values()
        )
        sections = [
            f'[server]\nlame_duck = "{LAME_DUCK}"',
            f'[fleet]\nnode = "{node.name}"\nbatch_marks = true\nnodes = [{others}]',
            f'[devices]\nemulated = [{{ kind = "{DEVICE}", memory = "16GiB", count = {DEVICES} }}]',
            f'[partition]\nlive = true\nprofiles = ["{self.profiles}"]',
        ]
        for served in self.models:
            sections.append(f'[models.{served.name}]\nslo = "{served.slo}"\nbatching = {{ policy = "triton" }}')
        return "\n\n".join(sections)

    def _create_objects(self) -> None:
        def created(path: str, body: dict) -> None:
            status, answer = self.api.apply(path, body)
            assert status in (200, 201), answer

        created(f"{GROUP}/servingpools", pool())
        for served in self.models:
            spec = {"objective": {"slo": served.slo}, "minReplicas": served.copies, "rate": served.rate}
            created(f"{GROUP}/models", model(served.name, **spec))
        for node in self.nodes.values():
            self.mark(node.name, ready=True)
            ports = [{"name": port, "port": PORTS[port], "protocol": "TCP"} for port in ("http", "grpc")]
            host = node.http_address.rpartition(":")[0]
            endpoint = {"addresses": [host], "nodeName": node.name, "conditions": {"ready": True, "serving": True}}
            labels = {"kubernetes.io/service-name": SERVICE}
            body = {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": f"{SERVICE}-{node.name}", "labels": labels},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [endpoint],
            }
            created(SLICES, body)

    def mark(self, node: str, ready: bool) -> None:
        """Say whether a Kubernetes node works, as Kubernetes' node controller does."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        status, answer = self.api.apply(NODES, body)
        assert status in (200, 201), answer
        body["status"] = {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
        status, answer = self.api.apply(NODES, body, subresource="status")
        assert status == 200, answer

    def start_leader(self, name: str, times: tuple[str, ...]) -> Process:
        """Start a candidate."""
        leader = Process(self.api, ["fleet", *times, "--identity", f"{name}-{time.monotonic_ns()}"])
        self.leaders[name] = leader
        return leader

    def start_leaders(self, times: tuple[str, ...]) -> None:
        """Replace the candidates by two with these times; none: the defaults."""
        for leader in self.leaders.values():
            assert leader.stop() == 0, leader.log()[-2000:]
        self.times = times
        for name in ("a", "b"):
            self.start_leader(name, times)
        until(every(self.leader), "one leads", 40)

    def leader(self) -> str | None:
        """Name of the candidate that leads."""
        running = {name: leader for name, leader in self.leaders.items() if leader.process.poll() is None}
        return next((name for name, leader in running.items() if leader.leads()), None)

    def epoch(self) -> int:
        """Epoch of the Lease."""
        return int(self.api.get(f"{LEASES}/tessera-fleet")["metadata"]["annotations"]["tessera.dev/epoch"])

    def plans(self) -> dict[str, dict]:
        """The NodePlans by name."""
        return {item["metadata"]["name"]: item for item in self.api.get(f"{GROUP}/nodeplans")["items"]}

    def has_epoch(self, least: int) -> bool:
        """Whether all plans have the epoch of the Lease, and that one is high enough."""
        epoch = self.epoch()
        return epoch >= least and {plan["spec"]["epoch"] for plan in self.plans().values()} == {epoch}

    def in_force(self) -> bool:
        """Whether every node has what its plan says."""

        def holds(plan: dict) -> bool:
            status = plan.get("status", {})
            return (
                condition(plan, "Ready").get("status") == "True"
                and status.get("observedGeneration") == plan["metadata"]["generation"]
                and set(status["ready"]) == {entry["model"] for entry in plan["spec"]["models"]}
            )

        plans = self.plans()
        copies = {served.name: 0 for served in self.models}
        for plan in plans.values():
            for entry in plan["spec"].get("models", []):
                copies[entry["model"]] += 1
        enough = copies == {served.name: served.copies for served in self.models}
        return set(plans) == set(self.nodes) and enough and all(holds(plan) for plan in plans.values())

    def wait_planned(self) -> None:
        """Wait until the plans of the leader are in force."""
        shown = lambda: {name: (plan["spec"], plan.get("status")) for name, plan in self.plans().items()}  # noqa: E731
        until(every(lambda: self.has_epoch(1) and self.in_force()), lambda: f"the plans are in force: {shown()}", 60)

    def wait_healthy(self) -> dict[str, float]:
        """Wait until the whole fleet works. Seconds from the call until each part did."""
        begun = time.monotonic()
        until(every(self.leader), "one leads", 40)
        took = {"one leads s": time.monotonic() - begun}
        self.wait_planned()
        took["plans are in force s"] = time.monotonic() - begun
        for picker in self.pickers:
            picker.wait_connected(len(self.nodes))
        took["pickers hear all nodes s"] = time.monotonic() - begun
        until(every(self._is_envoy_healthy), lambda: f"Envoy finds all servers healthy: {self.envoy.admin('/clusters')}", 20)
        return took

    def _is_envoy_healthy(self) -> bool:
        flags = [line for line in self.envoy.admin("/clusters").splitlines() if "::health_flags::" in line]
        return all(line.endswith("::healthy") for line in flags)

    def nodes_of(self, served: str) -> list[Node]:
        """Nodes whose plan has the model."""
        planned = self.plans().items()
        names = [name for name, plan in planned if served in [entry["model"] for entry in plan["spec"].get("models", [])]]
        return [self.nodes[name] for name in sorted(names)]

    def open_requests(self, node: Node) -> int:
        """Requests that Envoy sent to a server and that are not answered."""
        (line,) = [line for line in self.envoy.admin("/clusters").splitlines() if f"::{node.http_address}::rq_active::" in line]
        return int(line.rpartition("::")[2])

    def gateway(self) -> dict[str, int]:
        """Counters of Envoy that say what it did about faults."""
        pattern = "cluster.(servers_http|picker).upstream_(rq|cx)_(retry|timeout|connect_fail|destroy_remote_with_active_rq|.*fail.*)"
        lines = self.envoy.admin(f"/stats?filter={pattern}|ext_proc").splitlines()
        found = (line.rsplit(": ", 1) for line in lines if re.fullmatch(r"[^:]+: \d+", line))
        return {name: int(value) for name, value in found}

    def picked(self) -> dict[str, float]:
        """Requests that pickers sent, by what decided where, and that they refused, by reason."""
        counts = {}
        for number, picker in enumerate(self.pickers):
            for basis in ("batch", "weights", "any", "gateway"):
                counts[f"picker {number} sent by {basis}"] = picker.metric("tessera_picker_picks_total", basis=basis)
            for reason in ("unknown_model", "model_not_ready", "deadline_unmeetable", "expired", "shed", "queue_full"):
                counts[f"picker {number} refused as {reason}"] = picker.metric("tessera_picker_refusals_total", reason=reason)
        return counts

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for process in [*self.leaders.values(), *self.pickers]:
            process.__exit__(kind)
        self._stack.close()

