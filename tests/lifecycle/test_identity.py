"""Real clients over TLS with a key: who is let in, and what happens when keys and certificates are replaced."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from fixtures.certificates import Authority
from fixtures.keys import new_key
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

SECONDS = 20.0
ROW = np.array([[1, 2, 3, 4]], dtype=np.float32)


class Secured:
    """A server with TLS and keys, and clients of it."""

    def __init__(self, folder: Path, tls: str = "", listen: str = "") -> None:
        repository = folder / "models"
        repository.mkdir()
        echo(1_000).place(repository, "calc")
        self.authority = Authority(folder)
        self.certificate = self.authority.sign("server")
        self.keys = folder / "keys"
        self.infer, infer = new_key("--role", "infer", "--tenant", "search")
        self.operate, operate = new_key("--role", "operate", "--name", "alice")
        self.read, read = new_key("--role", "read")
        self.keys.write_text("\n".join([infer, operate, read]))
        config = f'{listen}[identity]\nkeys = "{self.keys}"\n[tls]\ncert = "{self.certificate[0]}"\nkey = "{self.certificate[1]}"\n{tls}'
        self.server = Tessera(repository, config)

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.ca)
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def ask(self, address: object, path: str, key: str | None = None, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        sent = {"authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(f"https://{address}{path}", data=body, headers=sent | headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS, context=self.context()) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def http(self, client: tuple[Path, Path] | None = None) -> httpclient.InferenceServerClient:
        options = {"ca_certs": str(self.authority.ca)}
        if client is not None:
            options |= {"certfile": str(client[0]), "keyfile": str(client[1])}
        return httpclient.InferenceServerClient(
            self.server.http_address, ssl=True, ssl_options=options, connection_timeout=SECONDS, network_timeout=SECONDS
        )

    def grpc(self, client: tuple[Path, Path] | None = None) -> grpcclient.InferenceServerClient:
        cert, key = (str(client[0]), str(client[1])) if client is not None else (None, None)
        return grpcclient.InferenceServerClient(
            self.server.grpc_address, ssl=True, root_certificates=str(self.authority.ca), private_key=key, certificate_chain=cert
        )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path)
    with secured.server:
        yield secured


def infer_http(client: httpclient.InferenceServerClient, key: str | None) -> np.ndarray:
    tensor = httpclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(ROW)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return client.infer("calc", [tensor], headers=headers).as_numpy("OUTPUT0")


def infer_grpc(client: grpcclient.InferenceServerClient, key: str | None) -> np.ndarray:
    tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
    tensor.set_data_from_numpy(ROW)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return client.infer("calc", [tensor], headers=headers, client_timeout=SECONDS).as_numpy("OUTPUT0")


def test_tritonclient_works_over_tls_with_a_key_and_not_without(secured: Secured) -> None:
    with secured.http() as http, secured.grpc() as grpc:
        assert http.is_server_ready() and grpc.is_server_ready(), "probes need no key"
        for infer, client, status in [(infer_http, http, "401"), (infer_grpc, grpc, "StatusCode.UNAUTHENTICATED")]:
            assert infer(client, secured.infer).tolist() == ROW.tolist()
            with pytest.raises(InferenceServerException, match="credentials are missing") as refused:
                infer(client, None)
            assert refused.value.status() == status
            with pytest.raises(InferenceServerException, match="this path needs role infer"):
                infer(client, secured.read)
        for client in (http, grpc):
            with pytest.raises(InferenceServerException, match="this path needs role operate"):
                client.load_model("calc", headers={"authorization": f"Bearer {secured.infer}"})
            client.load_model("calc", headers={"authorization": f"Bearer {secured.operate}"})
    changes = [(event["path"], event["caller"]) for event in secured.server.logged("change requested")]
    loads = ["/v2/repository/models/calc/load", "/inference.GRPCInferenceService/RepositoryModelLoad"]
    assert sorted(changes) == sorted((path, "alice") for path in loads), changes


def test_the_load_generator_measures_over_tls_with_a_key(secured: Secured) -> None:
    http, grpc = secured.server.http_address, secured.server.grpc_address
    for url in (f"https://{http}", f"https2://{http}", f"grpcs://{grpc}"):

        def load(*options: str, key: str = secured.infer, url: str = url) -> subprocess.CompletedProcess[str]:
            command = [os.environ["TESSERA_BIN"], "load", "--model", "calc", "--url", url, "--duration", "1s", "--warmup", "0s", "--json"]
            return subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, env={**os.environ, "TESSERA_KEY": key})

        measured = load("--ca", str(secured.authority.ca))
        report = json.loads(measured.stdout)
        assert report["target"]["url"] == url and report["total"]["good"] > 0 and not report["total"]["failed"], measured
        assert secured.infer not in measured.stdout
        assert "the TLS handshake failed" in load().stderr, "the server's authority is not known"
        assert "credentials" in load("--ca", str(secured.authority.ca), key="wrong").stderr


def test_the_admin_listener_manages_and_the_inference_listener_does_not(secured: Secured) -> None:
    admin, http = secured.server.announced["admin"], secured.server.http_address
    assert secured.ask(admin, "/v2/lanes", secured.read)[0] == 200
    assert secured.ask(admin, "/v2/lanes", secured.infer)[0] == 403
    assert secured.ask(admin, "/v2/lanes")[0] == 401
    status, text = secured.ask(http, "/v2/lanes", secured.operate)
    assert status == 404 and "server.admin" in text, text
    status, text = secured.ask(admin, "/v2/lanes", secured.operate, host="rebound.example")
    assert status == 403 and "header host" in text, text
    assert secured.ask(admin, "/v2/lanes/0/enable", secured.operate, b"", origin="https://evil.example")[0] == 403
    assert secured.ask(admin, "/v2/lanes/0/enable", secured.operate, b"")[0] == 200
    paths = [(event["path"], event["caller"]) for event in secured.server.logged("change requested")]
    assert paths.count(("/v2/lanes/0/enable", "alice")) == 1, paths


def metrics(secured: Secured) -> str:
    return secured.ask(secured.server.announced["metrics"], "/metrics")[1]


def test_keys_and_certificates_are_replaced_while_clients_stay_connected(secured: Secured) -> None:
    with secured.http() as http, secured.grpc() as grpc:
        infer_http(http, secured.infer)
        infer_grpc(grpc, secured.infer)
        replaced = secured.authority.sign("server")
        new, line = new_key("--role", "infer")
        secured.keys.write_text(line)
        until(lambda: len(secured.server.logged("file reloaded")) >= 3, lambda: f"files are reloaded:\n{secured.server.log()[-2000:]}")
        for infer, client in [(infer_http, http), (infer_grpc, grpc)]:
            assert infer(client, new).tolist() == ROW.tolist()
            with pytest.raises(InferenceServerException, match="credentials are not accepted"):
                infer(client, secured.infer)
        host, port = secured.server.http_address.rsplit(":", 1)
        shown = ssl.get_server_certificate((host, int(port)), timeout=SECONDS)
        assert shown.strip() == replaced[0].read_text().strip()
        secured.certificate[0].write_text("not a certificate")
        failures = 'tessera_identity_reload_failures_total{file="cert"} 1'
        until(lambda: failures in metrics(secured), lambda: f"the failure is counted:\n{metrics(secured)[-2000:]}")
        with secured.http() as later:
            assert infer_http(later, new).tolist() == ROW.tolist(), "the old certificate stays in force"
        assert 'tessera_certificate_expiry_seconds{file="cert"} 1' in metrics(secured)


def test_clients_need_a_certificate_if_an_authority_is_set(tmp_path: Path) -> None:
    secured = Secured(tmp_path, tls=f'client_ca = "{tmp_path / "ca.crt"}"\n')
    with secured.server:
        client = secured.authority.sign("client", "client.example")
        with secured.http(client) as http, secured.grpc(client) as grpc:
            assert infer_http(http, None).tolist() == ROW.tolist(), "the certificate has role infer"
            assert infer_grpc(grpc, None).tolist() == ROW.tolist()
        with secured.grpc() as grpc, pytest.raises(InferenceServerException):
            infer_grpc(grpc, None)
        with secured.http() as http, pytest.raises(Exception):  # noqa: B017, the exception is that of gevent's sockets
            infer_http(http, None)


def test_metrics_on_loopback_need_no_key(tmp_path: Path) -> None:
    secured = Secured(tmp_path, tls='listeners = ["http", "grpc", "admin"]\n')
    with secured.server:
        # On loopback, metrics are open.
        assert secured.server.metric("tessera_lane_up") >= 1
