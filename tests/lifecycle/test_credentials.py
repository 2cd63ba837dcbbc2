"""Wrong credentials of every kind: each is refused with the right code on every listener, and none is logged."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from tritonclient.grpc import service_pb2, service_pb2_grpc

from fixtures.certificates import Authority
from fixtures.keys import new_key
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.tokens import AUDIENCE, ISSUER, Signer, encoded

INFER = "/v2/models/calc/infer"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})


class Locked:
    """A server with TLS, keys and tokens."""

    def __init__(self, folder: Path) -> None:
        repository = folder / "models"
        repository.mkdir()
        echo(1_000).place(repository, "calc")
        self.authority, self.signer = Authority(folder), Signer()
        cert, key = self.authority.sign("server")
        self.keys, jwks = folder / "keys", folder / "jwks.json"
        self.infer, infer = new_key("--role", "infer", "--tenant", "search")
        self.read, read = new_key("--role", "read")
        self.operate, operate = new_key("--role", "operate")
        self.revoked, revoked = new_key("--role", "operate")
        self.hash = infer.split()[0]
        self.keys.write_text("\n".join([infer, read, operate, revoked]))
        jwks.write_text(json.dumps({"keys": [self.signer.jwk]}))
        config = f'''
[identity]
keys = "{self.keys}"
jwks = "{jwks}"
issuer = "{ISSUER}"
audience = ["{AUDIENCE}"]
[tls]
cert = "{cert}"
key = "{key}"
[tenants.search]
'''
        self.server = Tessera(repository, config)
        self.kept = "\n".join([infer, read, operate])

    def http(self, listener: str, method: str, path: str, headers: list[tuple[str, str]], body: str = "") -> int:
        host, port = str(self.server.announced[listener]).rsplit(":", 1)
        connection = HTTPSConnection(host, int(port), timeout=20, context=ssl.create_default_context(cafile=self.authority.ca))
        named = {name for name, _ in headers}
        connection.putrequest(method, path, skip_host="host" in named)
        for name, value in [*headers, ("content-length", str(len(body)))]:
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        return connection.getresponse().status

    def is_ready(self) -> bool:
        return self.http("http", "GET", "/v2/health/ready", []) == 200

    def grpc(self, metadata: list[tuple[str, str]]) -> int:
        trust = grpc.ssl_channel_credentials(self.authority.ca.read_bytes())
        with grpc.secure_channel(self.server.grpc_address, trust) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest(model_name="calc", raw_input_contents=[b"\0" * 16])
            request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 4])
            try:
                stub.ModelInfer(request, timeout=20, metadata=metadata)
            except grpc.RpcError as refused:
                codes = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.PERMISSION_DENIED: 403}
                return codes.get(refused.code(), 500)
        return 200


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    locked = Locked(tmp_path_factory.mktemp("credentials"))
    with locked.server:
        assert locked.is_ready()
        yield locked


def wrong(locked: Locked) -> list[tuple[str, list[tuple[str, str]], int]]:
    """Credentials that do not allow inference: what is wrong, headers, and the status."""
    signer, other, now = locked.signer, Signer(), int(time.time())
    good = signer.token()
    header, claims, signature = good.split(".")
    public = signer.key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    operator = encoded(json.dumps(signer.claims(role="operate")).encode())
    tokens = {
        "expired": signer.token(exp=now - 3_600),
        "expires at 0": signer.token(exp=0),
        "expires as text": signer.token(exp=str(now + 600)),
        "no expiry": signer.token(exp=None),
        "not yet valid": signer.token(nbf=now + 3_600),
        "other audience": signer.token(aud="other"),
        "other audiences": signer.token(aud=["other", "another"]),
        "no audience": signer.token(aud=None),
        "other issuer": signer.token(iss="https://evil.example"),
        "no issuer": signer.token(iss=None),
        "algorithm none": signer.unsigned("none"),
        "algorithm None": signer.unsigned("None"),
        "algorithm NONE": signer.unsigned("NONE"),
        "no algorithm": f"{encoded(json.dumps({'kid': 'one'}).encode())}.{claims}.{signature}",
        "no signature": f"{header}.{claims}.",
        "signature of another token": f"{header}.{operator}.{signature}",
        "signature cut short": good[:-8],
        "signature of zeros": f"{header}.{claims}.{encoded(bytes(64))}",
        "signed by the public key": signer.by_secret(public),
        "signed by nothing": signer.by_secret(b""),
        "signed by the audience": signer.by_secret(AUDIENCE.encode()),
        "another key with the same id": other.token(),
        "another key's id": other.token({"kid": "two"}),
        "key in the header": other.token({"kid": None, "jwk": other.jwk}),
        "key at a URL": other.token({"kid": None, "jku": "https://evil.example/jwks.json"}),
        "two parts": f"{header}.{claims}",
        "four parts": f"{good}.x",
        "claims that are not JSON": f"{header}.{encoded(b'nothing')}.{signature}",
        "header that is not base64": f"!!!.{claims}.{signature}",
        "huge token": f"{header}.{'a' * 12_000}.{signature}",
    }
    keys = {
        "unknown key": "tsk_" + "a" * 43,
        "key cut short": locked.infer[:-1],
        "key with a letter more": locked.infer + "a",
        "key in capitals": locked.infer.upper(),
        "hash of a key": locked.hash,
        "line of the file of keys": locked.keys.read_text().splitlines()[0],
        "revoked key": locked.revoked,
        "empty": "",
        "huge key": "a" * 12_000,
        "a role": "operate",
    }
    bearer = lambda credential: [("authorization", f"Bearer {credential}")]  # noqa: E731
    found = [(name, bearer(credential), 401) for name, credential in (tokens | keys).items()]
    found += [(f"{name} as x-api-key", [("x-api-key", credential)], 401) for name, credential in keys.items()]
    found += [
        ("nothing", [], 401),
        ("basic", [("authorization", f"Basic {base64.b64encode(locked.infer.encode()).decode()}")], 401),
        ("no scheme", [("authorization", locked.infer)], 401),
        ("other scheme", [("authorization", f"Token {locked.infer}")], 401),
        ("digest", [("authorization", f'Digest username="{locked.infer}"')], 401),
        ("cookie", [("cookie", f"authorization={locked.infer}; key={locked.infer}")], 401),
        ("two keys", [*bearer(locked.infer), ("x-api-key", locked.operate)], 401),
        ("a right and a wrong key", [*bearer(locked.infer), ("x-api-key", "wrong")], 401),
        ("two headers", [*bearer(locked.infer), *bearer(locked.operate)], 401),
        ("lower role", bearer(locked.read), 403),
        ("token of a lower role", bearer(signer.token(role="read")), 403),
        ("token without a role", bearer(signer.token(role=None)), 403),
        ("token of an unknown role", bearer(signer.token(role="root")), 403),
        ("token with a number as role", bearer(signer.token(role=1)), 403),
    ]
    return found


def test_every_wrong_credential_is_refused_and_none_is_logged(locked: Locked) -> None:
    assert locked.http("http", "POST", INFER, [("authorization", f"Bearer {locked.signer.token()}")], BODY) == 200
    assert locked.grpc([("authorization", f"Bearer {locked.infer}")]) == 200
    locked.keys.write_text(locked.kept)
    revoked = [("authorization", f"Bearer {locked.revoked}")]
    deadline = time.monotonic() + 20
    while locked.http("http", "GET", "/v2", revoked) == 200:
        assert time.monotonic() < deadline, "a removed key is refused"
    cases = wrong(locked)
    refused = []
    for name, headers, status in cases:
        seen = {"http": locked.http("http", "POST", INFER, headers, BODY)}
        # Cookies are not part of gRPC, and its client refuses bytes that HTTP allows.
        seen["grpc"] = locked.grpc(headers)
        # A reader may look at the lanes, and none of these callers may enable one.
        seen["admin"] = locked.http("admin", "POST", "/v2/lanes/0/enable", headers)
        if set(seen.values()) != {status}:
            refused.append((name, status, seen))
    assert refused == []
    listeners = 3
    assert len(cases) * listeners >= 60
    print(f"\n{len(cases)} wrong credentials on {listeners} listeners, all refused")
    log = locked.server.log()
    secrets = [value.removeprefix("Bearer ") for _, headers, _ in cases for _, value in headers]
    assert [secret for secret in secrets if len(secret) > 8 and secret in log] == []
    assert locked.is_ready()


def test_other_names_and_other_pages_are_refused_with_the_right_key(locked: Locked) -> None:
    key = ("authorization", f"Bearer {locked.operate}")
    admin = str(locked.server.announced["admin"])
    port = admin.rsplit(":", 1)[1]
    for headers in (
        [("host", "evil.example")],
        [("host", f"evil.example:{port}")],
        [("host", f"localhost.evil.example:{port}")],
        [("host", f"127.0.0.1.evil.example:{port}")],
        [("host", admin), ("origin", "https://evil.example")],
        [("host", admin), ("origin", "null")],
        [("host", admin), ("origin", f"http://{admin}.evil.example")],
        [("host", admin), ("origin", f"https://{admin}"), ("origin", "https://evil.example")],
    ):
        assert locked.http("admin", "POST", "/v2/lanes/0/enable", [key, *headers]) == 403, headers
        assert locked.http("admin", "GET", "/v2/config", [key, *headers]) == 403, headers
    assert locked.http("admin", "POST", "/v2/lanes/0/enable", [key]) == 200
