"""Several servers with different models: requests reach the server that has their model, once and in time."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from fixtures.certificates import Authority
from fixtures.client import Client
from fixtures.keys import new_key
from fixtures.synthetic import Synthetic, echo
from fixtures.tessera import Tessera
from fixtures.wait import until

ROW = [1.0, 2.0, 3.0, 4.0]
SECONDS = 20.0


class Nodes:
    """Servers that are started one after the other. Each may list those that were started before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = ExitStack()
        self.servers: dict[str, Tessera] = {}
        self.scheme = "http"

    def start(self, name: str, models: dict[str, int], others: str = "", config: str = "", fleet: str = "") -> Tessera:
        """`models`: milliseconds by name. `others`: names of the nodes that it lists, one letter each."""
        repository = self.folder / name
        repository.mkdir()
        for model, ms in models.items():
            echo(alpha_us=ms * 1_000).place(repository, model)
        server = Tessera(repository, f'{config}\n[fleet]\nnode = "{name}"\n{fleet}\n{self.listed(others)}')
        # It announces itself when its models are loaded.
        self.servers[name] = self.stack.enter_context(server)
        for other in others:
            self.wait_connected(server, other)
        return server

    def listed(self, names: str) -> str:
        rows = [
            f'{{ name = "{name}", http = "{self.scheme}://{self.servers[name].http_address}", '
            f'grpc = "{self.scheme}://{self.servers[name].grpc_address}" }}'
            for name in names
        ]
        return f"nodes = [{', '.join(rows)}]" if rows else ""

    def wait_connected(self, server: Tessera, other: str) -> None:
        until(lambda: server.metric("tessera_node_connected", node=other) == 1, lambda: f"node {other} is followed:\n{server.log()[-2000:]}")

    def kill(self, name: str) -> None:
        """End a server at once, as the loss of its machine would."""
        server = self.servers[name]
        server.process.kill()
        server.process.wait(SECONDS)
        # `stop` expects the exit code of a drain.
        server.process.returncode = 0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    with nodes.stack:
        yield nodes


def infer(server: Tessera, model: str, **headers: str) -> tuple[int, dict, dict[str, str]]:
    """Status, answer and headers of a JSON request."""
    client = Client(server)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": ROW}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    client.connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"id": "7", "inputs": [tensor]}), sent)
    answer = client.connection.getresponse()
    return answer.status, json.loads(answer.read()), {name.lower(): value for name, value in answer.getheaders()}


def grpc_tensor() -> grpcclient.InferInput:
    tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([ROW], dtype=np.float32))
    return tensor


def test_requests_reach_the_node_that_has_their_model(nodes: Nodes) -> None:
    b = nodes.start("b", {"far": 1})
    a = nodes.start("a", {"near": 1}, others="b")

    status, answer, headers = infer(a, "near")
    assert (status, answer["outputs"][0]["data"]) == (200, ROW) and "x-tessera-node" not in headers, headers

    status, answer, headers = infer(a, "far", x_request_id="mine")
    assert (status, answer["id"], answer["outputs"][0]["data"]) == (200, "7", ROW), answer
    assert (headers["x-tessera-node"], headers["x-request-id"]) == ("b", "mine"), headers
    assert "x-tessera-compute-us" in headers, headers

    with httpclient.InferenceServerClient(a.http_address, network_timeout=SECONDS) as client:
        tensor = httpclient.InferInput("INPUT0", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.array([ROW], dtype=np.float32))
        wanted = httpclient.InferRequestedOutput("OUTPUT0", binary_data=True)
        for compression in (None, "gzip"):
            result = client.infer("far", [tensor], outputs=[wanted], request_compression_algorithm=compression)
            assert result.as_numpy("OUTPUT0").tolist() == [ROW], compression
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        for compression in (None, "gzip", "deflate"):
            result = client.infer("far", [grpc_tensor()], client_timeout=SECONDS, compression_algorithm=compression)
            assert result.as_numpy("OUTPUT0").tolist() == [ROW], compression
        assert client.infer("near", [grpc_tensor()], client_timeout=SECONDS).as_numpy("OUTPUT0").tolist() == [ROW]
    assert a.metric("tessera_forwarded_total", node="b", result="answered") == 6
    assert b.metric("tessera_requests_total", model="far") == 6


def test_large_tensors_travel_both_ways(nodes: Nodes) -> None:
    nodes.start("b", {})
    repository = nodes.folder / "c"
    repository.mkdir()
    values = 1_000_000
    Synthetic(1_000, inputs=values, outputs=values, input="INPUT0", output="OUTPUT0").place(repository, "wide")
    nodes.servers["c"] = nodes.stack.enter_context(Tessera(repository, '[fleet]\nnode = "c"\n'))
    a = nodes.start("a", {"near": 1}, others="bc")
    row = np.arange(values, dtype=np.float32).reshape(1, values)
    tensor = grpcclient.InferInput("INPUT0", [1, values], "FP32")
    tensor.set_data_from_numpy(row)
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        assert (client.infer("wide", [tensor], client_timeout=SECONDS).as_numpy("OUTPUT0") == row).all()
    tensor = httpclient.InferInput("INPUT0", [1, values], "FP32")
    tensor.set_data_from_numpy(row)
    with httpclient.InferenceServerClient(a.http_address, network_timeout=SECONDS) as client:
        wanted = httpclient.InferRequestedOutput("OUTPUT0", binary_data=True)
        assert (client.infer("wide", [tensor], outputs=[wanted]).as_numpy("OUTPUT0") == row).all()
    assert a.metric("tessera_body_bytes") == 0, "what was held for bodies is given back"


def test_a_request_goes_on_once_at_most_and_not_for_models_that_no_node_has(nodes: Nodes) -> None:
    nodes.start("b", {"far": 1})
    a = nodes.start("a", {"near": 1}, others="b")
    status, answer, headers = infer(a, "far", x_tessera_forwarded="c")
    assert (status, headers["x-tessera-reason"]) == (404, "unknown_model"), answer
    status, answer, headers = infer(a, "nowhere")
    assert (status, headers["x-tessera-reason"]) == (404, "unknown_model"), answer
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        for model, sent in (("far", {"x-tessera-forwarded": "c"}), ("nowhere", {})):
            with pytest.raises(InferenceServerException) as refused:
                client.infer(model, [grpc_tensor()], headers=sent, client_timeout=SECONDS)
            assert "NOT_FOUND" in str(refused.value.status()), refused.value
    assert a.metric("tessera_forwarded_total") == 0


def test_errors_of_the_other_node_come_back_unchanged(nodes: Nodes) -> None:
    nodes.start("b", {"far": 1})
    a = nodes.start("a", {"near": 1}, others="b")
    status, answer, headers = Client(a).post("/v2/models/far/infer", {"inputs": []})
    assert (status, headers["x-tessera-reason"], headers["x-tessera-node"]) == (400, "malformed", "b"), answer
    assert a.metric("tessera_forwarded_total", node="b", result="refused") == 1


def test_the_time_that_a_request_used_up_counts(nodes: Nodes) -> None:
    b = nodes.start("b", {"far": 20}, config='[models.far]\nslo = "5s"')
    a = nodes.start("a", {"near": 1}, others="b")
    assert infer(b, "far", x_tessera_forwarded="a", x_tessera_elapsed_us="1000")[0] == 200
    status, answer, headers = infer(b, "far", x_tessera_forwarded="a", x_tessera_elapsed_us="5000000")
    assert (status, headers.get("x-tessera-reason")) == (504, "expired"), answer
    assert infer(b, "far", x_tessera_elapsed_us="5000000")[0] == 200, "only other nodes say what was used up"
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        client.infer("far", [grpc_tensor()], client_timeout=SECONDS)
        with pytest.raises(InferenceServerException) as refused:
            client.infer("far", [grpc_tensor()], client_timeout=0.01)
        assert any(code in str(refused.value.status()) for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")), refused.value


def test_the_deadline_counts_from_the_first_byte_at_the_first_node(nodes: Nodes) -> None:
    nodes.start("b", {"far": 1}, config='[models.far]\nslo = "200ms"')
    a = nodes.start("a", {"near": 1}, others="b")
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": ROW}
    body = json.dumps({"inputs": [tensor]}).encode()
    for pause, status in ((0.0, 200), (0.3, 504)):
        connection = Client(a).connection
        connection.putrequest("POST", "/v2/models/far/infer")
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body[:10])
        time.sleep(pause)  # a client that sends slowly
        connection.send(body[10:])
        answer = connection.getresponse()
        assert (answer.status, answer.headers["x-tessera-node"]) == (status, "b"), answer.read()


def test_a_node_that_ends_is_refused_with_a_reason_or_replaced_by_another(nodes: Nodes) -> None:
    nodes.start("b", {"far": 1, "twice": 1})
    nodes.start("c", {"twice": 1})
    a = nodes.start("a", {"near": 1}, others="bc")
    assert infer(a, "twice")[2]["x-tessera-node"] == "b", "ties are decided by name"
    nodes.kill("b")
    status, answer, headers = infer(a, "twice")
    assert (status, headers.get("x-tessera-node")) == (200, "c"), answer
    status, answer, headers = infer(a, "far")
    assert (status, headers["x-tessera-reason"]) == (503, "node_unreachable"), answer
    assert "node `b`" in answer["error"] and "retry-after" in headers, answer
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        client.infer("twice", [grpc_tensor()], client_timeout=SECONDS)
        with pytest.raises(InferenceServerException) as refused:
            client.infer("far", [grpc_tensor()], client_timeout=SECONDS)
        assert "UNAVAILABLE" in str(refused.value.status()) and "node `b`" in str(refused.value.message())
    until(lambda: a.metric("tessera_node_connected", node="b") == 0, "the loss of node b is seen")
    assert infer(a, "near")[0] == 200


def test_a_draining_node_gets_no_more_requests(nodes: Nodes) -> None:
    b = nodes.start("b", {"twice": 1, "far": 1}, config='[server]\nlame_duck = "30s"')
    nodes.start("c", {"twice": 1})
    a = nodes.start("a", {"near": 1}, others="bc")
    assert infer(a, "twice")[2]["x-tessera-node"] == "b"
    b.process.send_signal(signal.SIGTERM)
    until(lambda: infer(a, "twice")[2]["x-tessera-node"] == "c", "requests go to node c", seconds=5)
    assert {infer(a, "twice")[2]["x-tessera-node"] for _ in range(20)} == {"c"}
    status, answer, headers = infer(a, "far")
    assert (status, headers["x-tessera-node"]) == (200, "b"), "no other node has this model, and node b still serves"
    nodes.kill("b")


def test_a_node_that_hangs_is_refused_in_time_and_used_again_when_it_goes_on(nodes: Nodes) -> None:
    b = nodes.start("b", {"far": 1})
    a = nodes.start("a", {"near": 1}, others="b")
    assert infer(a, "far")[0] == 200
    b.process.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        status, answer, headers = infer(a, "far")
        assert (status, headers["x-tessera-reason"]) == (503, "node_unreachable"), answer
        assert time.monotonic() - begun < 8, "docs/nodes.md says at most 5 seconds"
        until(lambda: a.metric("tessera_node_connected", node="b") == 0, "the hang of node b is seen")
    finally:
        b.process.send_signal(signal.SIGCONT)
    nodes.wait_connected(a, "b")
    assert infer(a, "far")[0] == 200


def test_keys_and_tenants_travel(nodes: Nodes, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    user, user_line = new_key("--role", "infer", "--tenant", "search")
    gateway, gateway_line = new_key("--role", "infer", "--name", "gateway")
    reader, reader_line = new_key("--role", "read")
    keys.write_text("\n".join([user_line, gateway_line, reader_line]))
    (tmp_path / "reader").write_text(reader)
    config = f'[server]\ntenant_header = "x-tenant"\n[identity]\nkeys = "{keys}"\n[tenants.search]\nweight = 2\n[tenants.ads]\nweight = 1'
    b = nodes.start("b", {"far": 1}, config=config)
    a = nodes.start("a", {"near": 1}, others="b", config=config, fleet=f'key_file = "{tmp_path / "reader"}"')
    assert infer(a, "far")[0] == 401
    assert infer(a, "far", authorization=f"Bearer {reader}")[0] == 403
    assert infer(a, "far", authorization=f"Bearer {user}")[0] == 200
    assert infer(a, "far", authorization=f"Bearer {gateway}", x_tenant="ads")[0] == 200
    for tenant in ("search", "ads"):
        assert b.metric("tessera_tenant_requests_total", tenant=tenant, outcome="answered") == 1, tenant
    assert a.metric("tessera_forwarded_total", node="b") == 2, "callers are checked before requests go on"


def test_nodes_speak_tls(nodes: Nodes, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("node")
    nodes.start("b", {"far": 1}, config=f'[tls]\ncert = "{certificate}"\nkey = "{key}"')
    nodes.scheme = "https"
    a = nodes.start("a", {"near": 1}, others="b", fleet=f'ca = "{authority.ca}"')
    status, answer, headers = infer(a, "far")
    assert (status, headers.get("x-tessera-node")) == (200, "b"), answer
    with grpcclient.InferenceServerClient(a.grpc_address) as client:
        client.infer("far", [grpc_tensor()], client_timeout=SECONDS)


def test_forwarding_is_off_without_other_nodes_and_by_a_setting(nodes: Nodes) -> None:
    b = nodes.start("b", {"far": 1})
    a = nodes.start("a", {"near": 1}, others="b", fleet="forward = false")
    status, answer, headers = infer(a, "far")
    assert (status, headers["x-tessera-reason"]) == (404, "unknown_model"), answer
    assert not any("forwarded" in series for series in b.metrics())


def test_requests_over_the_bound_are_refused(nodes: Nodes) -> None:
    nodes.start("b", {"far": 500})
    a = nodes.start("a", {"near": 1}, others="b", fleet="forwards = 1")
    first = Client(a)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": ROW}
    first.connection.request("POST", "/v2/models/far/infer", json.dumps({"inputs": [tensor]}))
    until(lambda: a.metric("tessera_requests_in_flight") == 1, "the first request is on its way")
    status, answer, headers = infer(a, "far")
    assert (status, headers["x-tessera-reason"]) == (503, "queue_full"), answer
    assert "fleet.forwards" in answer["error"]
    assert first.connection.getresponse().status == 200
