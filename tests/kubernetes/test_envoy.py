"""deploy/gateway/envoy.yaml in a real Envoy, in front of real servers."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
import yaml
from chart import NAMESPACE, SETS, one, render
from fixtures.envoy import SOURCE, Envoy
from fixtures.tessera import Tessera
from fixtures.wait import until
from picker import Picker
from programs import ROOT, run

SAMPLE = (ROOT / "models/bundled/digits/sample.json").read_bytes()
INFER = "/v2/models/digits/infer"
NOWHERE = "127.0.0.1:1"


def targets(config: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Host name and port of each cluster."""
    found = {}
    for cluster in config["static_resources"]["clusters"]:
        ((endpoint,),) = [entry["lb_endpoints"] for entry in cluster["load_assignment"]["endpoints"]]
        address = endpoint["endpoint"]["address"]["socket_address"]
        found[cluster["name"]] = (address["address"], address["port_value"])
    return found


def test_envoy_accepts_the_file_and_its_names_are_those_of_the_chart() -> None:
    run(os.environ["ENVOY"], "--mode", "validate", "--log-level", "error", "-c", SOURCE)
    objects = render(SETS["fleet"])
    expected = {"picker": "pickers", "servers_http": "nodes", "servers_grpc": "nodes"}
    for cluster, (host, port) in targets(yaml.safe_load(SOURCE.read_text())).items():
        service = one(objects, "Service", f"tessera-{expected[cluster]}")
        assert host == f"{service['metadata']['name']}.{NAMESPACE}.svc"
        assert service["spec"]["clusterIP"] == "None", "Envoy sees each address"
        assert port in [entry["port"] for entry in service["spec"]["ports"]]


class Gateway(Envoy):
    """Envoy with that file, asked for the bundled model."""

    def infer(self, **headers: str) -> int:
        """The status of a request; its answer must be right."""
        request = urllib.request.Request(f"http://{self.address}{INFER}", SAMPLE, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            outputs = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
            assert outputs["digit"] == [7]
            return answer.status


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Tessera]]:
    with ExitStack() as stack:
        started = [stack.enter_context(Tessera(ROOT / "models/bundled")) for _ in range(2)]
        for server in started:
            server.wait_ready()
        yield started


@pytest.fixture
def picker() -> Iterator[Picker]:
    with Picker() as started:
        yield started


@pytest.fixture
def envoy(servers: list[Tessera], picker: Picker) -> Iterator[Gateway]:
    with Gateway(servers, [f"127.0.0.1:{picker.port}"]) as started:
        yield started


def test_requests_go_where_the_picker_says(envoy: Gateway, picker: Picker, servers: list[Tessera]) -> None:
    for index in (0, 1):
        chosen = servers[index].http_address
        picker.name(chosen)
        before = envoy.answered(chosen)
        named = {"x-gateway-destination-endpoint": servers[1 - index].http_address}
        assert all(envoy.infer(**named) == 200 for _ in range(10))
        assert envoy.answered(chosen) - before == 10
    # A server that Envoy does not know is passed over.
    chosen = servers[0].http_address
    picker.name(NOWHERE, chosen)
    before = envoy.answered(chosen)
    assert all(envoy.infer() == 200 for _ in range(5))
    assert envoy.answered(chosen) - before == 5
    assert picker.requests == 25 and picker.bodies == 0
    until(lambda: picker.responses == 25, "the picker learns of the end of each request")


def test_a_picker_can_set_no_other_header(envoy: Gateway, picker: Picker) -> None:
    picker.headers = {b":path": b"/v2/models/other/infer", b"host": b"elsewhere"}
    assert envoy.infer() == 200


def test_without_a_picker_every_request_is_answered(servers: list[Tessera]) -> None:
    with Gateway(servers, [NOWHERE]) as envoy:
        # What a client names does not count here either.
        named = {"x-gateway-destination-endpoint": servers[0].http_address}
        assert all(envoy.infer(**named) == 200 for _ in range(20))
        counts = [envoy.answered(server.http_address) for server in servers]
        assert sum(counts) == 20 and min(counts) > 0, counts


def test_grpc_reaches_the_servers(envoy: Gateway, picker: Picker, servers: list[Tessera]) -> None:
    chosen = servers[1].grpc_address
    picker.name(chosen)
    with grpc.insecure_channel(envoy.address) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        # ServerLiveResponse: field 1, live, is true.
        assert live(b"", timeout=10) == b"\x08\x01"
    assert envoy.answered(chosen) == 1


def test_a_server_that_stops_loses_no_request(picker: Picker, servers: list[Tessera]) -> None:
    """The picker goes on naming the server that stops first: its refusals and its closed port lead to the second one."""
    with Tessera(ROOT / "models/bundled") as leaving:
        leaving.wait_ready()
        with Gateway([leaving, servers[0]], [f"127.0.0.1:{picker.port}"]) as envoy:
            picker.name(leaving.http_address, servers[0].http_address)
            assert envoy.infer() == 200 and envoy.answered(leaving.http_address) == 1
            leaving.process.send_signal(signal.SIGTERM)
            assert all(envoy.infer() == 200 for _ in range(50))
            leaving.process.wait(30)
            assert all(envoy.infer() == 200 for _ in range(50))
