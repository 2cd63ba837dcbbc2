"""Endpoint pickers between a real Envoy, with the configuration that we ship, and real servers."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from fixtures.envoy import Envoy
from fixtures.fleet import Picker, free_addresses
from fixtures.kubernetes import GROUP, ApiServer, plan
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

SECONDS = 20.0
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@dataclass
class World:
    """Servers, pickers and Envoys, which are ended in reverse."""

    folder: Path
    stack: ExitStack
    nodes: dict[str, Tessera] = field(default_factory=dict)

    def node(self, name: str, models: dict[str, int], config: str = "") -> Tessera:
        """Start a server. `models`: milliseconds of a batch by name."""
        repository = self.folder / name
        repository.mkdir()
        for model, ms in models.items():
            echo(alpha_us=ms * 1_000, max_batch=8).place(repository, model)
        server = self.stack.enter_context(Tessera(repository, f'[fleet]\nnode = "{name}"\n{config}'))
        self.nodes[name] = server.wait_ready()
        return server

    def picker(self, *options: str) -> Picker:
        """Start a picker for all nodes, and wait until it hears them."""
        picker = self.stack.enter_context(Picker(self.nodes, *options))
        picker.wait_connected(len(self.nodes))
        return picker

    def pickers(self, count: int) -> list[Picker]:
        """Start pickers that know of each other, and wait until they are connected."""
        listen = free_addresses(count)
        peers = [word for address in listen for word in ("--peer", address)]
        options = [[*peers, "--number", str(number)] for number in range(count)]
        started = [
            self.stack.enter_context(Picker(self.nodes, *words, listen=address))
            for words, address in zip(options, listen, strict=True)
        ]
        for picker in started:
            picker.wait_connected(len(self.nodes))
            picker.wait_peers(count - 1)
        return started

    def envoy(self, *pickers: Picker) -> Envoy:
        """Start an Envoy that asks these pickers."""
        return self.stack.enter_context(Envoy(list(self.nodes.values()), [picker.address() for picker in pickers]))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


class Client:
    """One connection to Envoy."""

    def __init__(self, envoy: Envoy) -> None:
        self.connection = http.client.HTTPConnection(envoy.address, timeout=SECONDS)

    def infer(self, model: str, **headers: str) -> tuple[int, dict, dict[str, str]]:
        """Status, answer and headers of a request."""
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}), sent)
        answer = self.connection.getresponse()
        text = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(text) if found.get("content-type") == "application/json" else {}, found


class Load:
    """Clients that send one request after the other until they are stopped."""

    def __init__(self, envoy: Envoy, model: str, clients: int) -> None:
        self.answered, self.failed = 0, []
        self._envoy, self._model = envoy, model
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _run(self) -> None:
        client = Client(self._envoy)
        while not self._stop.is_set():
            try:
                status, answer, headers = client.infer(self._model)
                problem = None if status == 200 else f"{status} {headers.get('x-tessera-reason')} {answer}"
            except (OSError, http.client.HTTPException) as error:
                client, problem = Client(self._envoy), repr(error)
            with self._lock:
                if problem is None:
                    self.answered += 1
                else:
                    self.failed.append(problem)

    def wait(self, more: int) -> None:
        """Wait until that many more requests were answered."""
        target = self.answered + more
        until(lambda: self.answered >= target, lambda: f"{more} more answers; failed: {self.failed[:5]}", 60)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS * 2)


def grpc_infer(envoy: Envoy, model: str, **metadata: str) -> list[float]:
    tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([[1.0, 2.0, 3.0, 4.0]], dtype=np.float32))
    headers = {name.replace("_", "-"): value for name, value in metadata.items()}
    with grpcclient.InferenceServerClient(envoy.address) as client:
        answer = client.infer(model, [tensor], client_timeout=SECONDS, headers=headers)
        return answer.as_numpy("OUTPUT0").tolist()[0]


def test_each_request_reaches_a_node_that_has_its_model(world: World) -> None:
    a, b = world.node("a", {"x": 1}), world.node("b", {"y": 1})
    picker = world.picker()
    assert picker.is_ready()
    envoy = world.envoy(picker)
    client = Client(envoy)
    for _ in range(20):
        # What a client writes itself does not count.
        for model, other in (("x", b), ("y", a)):
            status, answer, _ = client.infer(
                model, x_gateway_destination_endpoint=other.http_address, x_tessera_batch="7/99"
            )
            assert (status, answer["outputs"][0]["data"]) == (200, [1.0, 2.0, 3.0, 4.0])
    for model in ("x", "y"):
        assert grpc_infer(envoy, model, x_tessera_model=model) == [1.0, 2.0, 3.0, 4.0]
    assert (a.metric("tessera_requests_total", model="x"), b.metric("tessera_requests_total", model="y")) == (21, 21)
    assert (picker.picks("batch"), picker.picks("any")) == (42, 0)
    assert picker.metric("tessera_picker_hold_seconds_count") == 42
    # Without the name of its model, a call goes to any node.
    with grpcclient.InferenceServerClient(envoy.address) as client:
        assert client.is_server_ready(client_timeout=SECONDS)
    assert picker.picks("any") == 1


def test_refusals_have_the_status_and_the_reason_of_a_server(world: World) -> None:
    world.node("a", {"x": 20})
    picker = world.picker("--objective", "x=10s")
    envoy = world.envoy(picker)
    client = Client(envoy)
    status, answer, headers = client.infer("nowhere")
    assert (status, headers["x-tessera-reason"]) == (404, "unknown_model"), answer
    assert answer == {"error": "model 'nowhere' is not on any node of the fleet"}
    status, answer, headers = client.infer("x", x_tessera_rows="many")
    assert (status, headers["x-tessera-reason"]) == (400, "malformed")
    assert answer == {"error": "x-tessera-rows: expected a whole number from 1, got `many`"}
    with Load(envoy, "x", 2) as load:
        load.wait(4)
        status, answer, headers = client.infer("x", x_tessera_timeout_us="2000")
        assert (status, headers["x-tessera-reason"], headers["retry-after"]) == (503, "deadline_unmeetable", "1"), answer
    assert load.failed == []
    with pytest.raises(InferenceServerException) as refused:
        grpc_infer(envoy, "nowhere", x_tessera_model="nowhere")
    assert refused.value.status() == str(grpc.StatusCode.NOT_FOUND)
    assert refused.value.message() == "model 'nowhere' is not on any node of the fleet"
    assert picker.metric("tessera_picker_refusals_total", reason="unknown_model") == 2
    assert client.infer("x")[0] == 200


def test_requests_may_wait_longer_than_envoy_waits_for_a_silent_picker(world: World) -> None:
    world.node("a", {"x": 250})
    picker = world.picker()
    # Batches of up to 8, so some requests wait for the whole batch before theirs.
    with Load(world.envoy(picker), "x", 20) as load:
        load.wait(60)
    assert load.failed == []
    assert picker.metric("tessera_picker_abandoned_total") == 0
    assert picker.metric("tessera_picker_hold_seconds_bucket", le="0.1") < picker.metric("tessera_picker_hold_seconds_count")


def test_requests_go_to_servers_whose_devices_are_fast_enough(world: World) -> None:
    fast, slow = world.node("a", {"x": 20}), world.node("b", {"x": 400})
    picker = world.stack.enter_context(Picker(world.nodes, types={"a": "fast", "b": "slow"}))
    picker.wait_connected(2)
    envoy = world.envoy(picker)

    def infer_all(timeout_us: str) -> list[int]:
        def infer(_: int) -> list[int]:
            client = Client(envoy)
            return [client.infer("x", x_tessera_timeout_us=timeout_us)[0] for _ in range(10)]

        with ThreadPoolExecutor(8) as clients:
            return [status for statuses in clients.map(infer, range(8)) for status in statuses]

    def counts() -> list[float]:
        return [server.metric("tessera_requests_total", model="x") or 0 for server in (fast, slow)]

    assert infer_all("300000") == [200] * 80
    assert counts() == [80, 0], "a batch of the slow server takes 400 ms"
    assert infer_all("5000000") == [200] * 80
    assert counts()[1] > 0, "where there is time, both serve"


def test_a_killed_node_loses_only_the_requests_inside_it(world: World) -> None:
    killed = world.node("a", {"x": 4})
    world.node("b", {"x": 4})
    picker = world.picker()
    clients = 6
    with Load(world.envoy(picker), "x", clients) as load:
        load.wait(100)
        killed.process.kill()
        killed.process.wait(SECONDS)
        killed.process.returncode = 0  # `stop` expects the exit code of a drain
        load.wait(200)
    print(f"killed node: {load.answered} answered, {len(load.failed)} lost: {load.failed}")
    assert len(load.failed) <= clients, load.failed


def test_a_frozen_picker_delays_requests_and_loses_none(world: World) -> None:
    world.node("a", {"x": 1})
    world.node("b", {"x": 1})
    picker = world.picker()
    with Load(world.envoy(picker), "x", 4) as load:
        load.wait(50)
        picker.send(signal.SIGSTOP)
        load.wait(50)
        picker.send(signal.SIGCONT)
        picks = picker.picks("batch")
        until(lambda: picker.picks("batch") > picks + 50, "the picker is asked again")
    assert load.failed == []


def owner_and_asker(pickers: list[Picker]) -> tuple[Picker, Picker]:
    """The picker that owns the servers, and one that asks it."""
    owned = lambda: sum(picker.picks("batch") > 20 for picker in pickers) == 1  # noqa: E731
    until(owned, lambda: f"one picker owns the servers: {[picker.picks('batch') for picker in pickers]}")
    owner = next(picker for picker in pickers if picker.picks("batch") > 20)
    return owner, next(picker for picker in pickers if picker is not owner)


def marked(world: World, result: str) -> float:
    """Batches of all servers with this result."""
    return sum(node.metric("tessera_marked_batches_total", result=result) for node in world.nodes.values())


def batches(world: World, pickers: list[Picker]) -> tuple[float, float]:
    """Requests in a batch of 12 clients, and the share of batches that reached their server whole."""
    with Load(world.envoy(*pickers), "x", 12) as load:
        load.wait(100)
        before = marked(world, "complete"), marked(world, "incomplete"), load.answered
        load.wait(600)
        complete, incomplete = marked(world, "complete") - before[0], marked(world, "incomplete") - before[1]
        answered = load.answered - before[2]
    assert load.failed == []
    return answered / (complete + incomplete), complete / (complete + incomplete)


def test_batches_stay_whole_with_two_pickers(world: World) -> None:
    for name in "ab":
        world.node(name, {"x": 10}, 'batch_marks = true\n[models.x]\nbatching = { policy = "triton" }')
    one_batch, one_whole = batches(world, [world.picker()])
    pickers = world.pickers(2)
    two_batch, two_whole = batches(world, pickers)
    print(f"requests in a batch with 1 picker {one_batch:.2f}, 2 pickers {two_batch:.2f}; whole {one_whole:.1%}, {two_whole:.1%}")
    asker, owner = sorted(pickers, key=lambda picker: picker.picks("batch"))
    assert asker.picks("batch") == 0
    assert asker.picks("owner") > 100
    assert asker.picks("weights") + owner.picks("weights") == 0
    assert two_batch > 0.85 * one_batch
    assert two_whole > 0.85


def test_an_owner_that_is_killed_loses_no_request_and_another_picker_takes_over(world: World) -> None:
    for name in "ab":
        world.node(name, {"x": 4}, "batch_marks = true")
    pickers = world.pickers(2)
    with Load(world.envoy(*pickers), "x", 8) as load:
        owner, asker = owner_and_asker(pickers)
        until(lambda: asker.picks("owner") > 50, "the other picker asks it")
        owner.kill()
        until(lambda: asker.picks("batch") > 50, "the other picker forms the batches")
        load.wait(100)
    print(f"killed owner: asked for and answered {asker.asked('answered')}, disconnected {asker.asked('disconnected')}")
    assert load.failed == []


def test_a_frozen_owner_loses_no_request_and_owns_its_servers_again_later(world: World) -> None:
    for name in "ab":
        world.node(name, {"x": 4}, "batch_marks = true")
    pickers = world.pickers(2)
    with Load(world.envoy(*pickers), "x", 8) as load:
        owner, asker = owner_and_asker(pickers)
        until(lambda: asker.picks("owner") > 50, "the other picker asks it")
        owner.send(signal.SIGSTOP)
        until(lambda: asker.picks("batch") > 50, "the other picker forms the batches")
        owner.send(signal.SIGCONT)
        answered = asker.asked("answered")
        until(lambda: asker.asked("answered") > answered + 50, "the owner is asked again")
    print(f"frozen owner: {asker.asked('silent')} requests waited for it, {asker.asked('unreachable')} did not")
    assert load.failed == []
    assert asker.asked("silent") > 0


def test_an_owner_that_stops_loses_no_request(world: World) -> None:
    for name in "ab":
        world.node(name, {"x": 2}, "batch_marks = true")
    pickers = world.pickers(2)
    with Load(world.envoy(*pickers), "x", 8) as load:
        owner, asker = owner_and_asker(pickers)
        until(lambda: asker.picks("owner") > 50, "the other picker asks it")
        assert owner.stop() == 0
        until(lambda: asker.picks("batch") > 50, "the other picker forms the batches")
    assert load.failed == []


def test_pickers_find_each_other_by_a_service(api: ApiServer, world: World) -> None:
    world.node("a", {"x": 1})
    listen = free_addresses(2)
    for number, address in enumerate(listen):
        endpoint = {"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "name": f"pick-{number}"}}
        status, answer = api.apply(
            SLICES,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": f"pickers-{number}", "labels": {"kubernetes.io/service-name": "pickers"}},
                "addressType": "IPv4",
                "ports": [{"name": "grpc", "port": int(address.rpartition(":")[2]), "protocol": "TCP"}],
                "endpoints": [endpoint],
            },
        )
        assert status in (200, 201), answer
    pickers = [
        world.stack.enter_context(
            Picker(world.nodes, "--peers", "pickers", "--number", str(number), api=api, listen=address)
        )
        for number, address in enumerate(listen)
    ]
    for picker in pickers:
        picker.wait_connected(1)
        picker.wait_peers(1)
    with Load(world.envoy(*pickers), "x", 4) as load:
        load.wait(100)
    assert load.failed == []
    assert sum(picker.picks("owner") for picker in pickers) > 0
    # One that is not part of the Service any more is not asked.
    status, answer = api.call("DELETE", f"{SLICES}/pickers-1")
    assert status == 200, answer
    pickers[0].wait_peers(0)


def test_nodes_come_from_a_service_and_rates_from_plans(api: ApiServer, world: World) -> None:
    a, b = world.node("a", {"x": 1}), world.node("b", {"y": 1})
    picker = world.stack.enter_context(Picker("tessera-nodes", api=api))
    address = picker.address()
    assert not picker.is_ready(), "it knows no node"
    for name, server in world.nodes.items():
        ports = [
            {"name": port, "port": int(where.rpartition(":")[2]), "protocol": "TCP"}
            for port, where in (("http", server.http_address), ("grpc", server.grpc_address))
        ]
        endpoint = {"addresses": ["127.0.0.1"], "nodeName": name, "conditions": {"ready": True, "serving": True}}
        status, answer = api.apply(
            SLICES,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": f"tessera-nodes-{name}", "labels": {"kubernetes.io/service-name": "tessera-nodes"}},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [endpoint],
            },
        )
        assert status in (200, 201), answer
    until(picker.is_ready, lambda: f"it knows a node:\n{picker.log()}")
    picker.wait_connected(2)
    envoy = world.stack.enter_context(Envoy([a, b], [address]))
    client = Client(envoy)
    assert [client.infer(model)[0] for model in ("x", "y") * 5] == [200] * 10
    assert client.infer("z")[0] == 404
    # A planned model is one that the fleet is about to have: not unknown any more.
    status, answer = api.apply(f"{GROUP}/nodeplans", plan("a", 1, ["z"]))
    assert status in (200, 201), answer
    until(lambda: client.infer("z")[2].get("x-tessera-reason") != "unknown_model" or picker.picks("weights"), "the plan is known")
    status, answer = api.call("DELETE", f"{SLICES}/tessera-nodes-b")
    assert status == 200, answer
    picker.wait_connected(1)
    assert client.infer("y")[0] != 200
    assert client.infer("x")[0] == 200
