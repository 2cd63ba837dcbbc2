"""The real server with what the chart gives it: its configuration, its environment, its probes and the first request."""

from __future__ import annotations

import json
import os
import re
import shlex
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from chart import NAME, SETS, Object, environment_of, helm, one, render, server_of
from fixtures.certificates import Authority
from fixtures.keys import new_key
from fixtures.tessera import Tessera
from fixtures.wait import until
from programs import ROOT, attempt

BINARY = os.environ["TESSERA_BIN"]


def environment(objects: list[Object]) -> dict[str, str]:
    """The variables of the container, as literal values."""
    return environment_of(server_of(objects))


@pytest.mark.parametrize("name", [name for name in sorted(SETS) if name != "everything"])
def test_the_server_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    objects = render(SETS[name])
    config = tmp_path / "tessera.toml"
    config.write_text(one(objects, "ConfigMap", f"{NAME}-config")["data"]["tessera.toml"])
    variables = environment(objects)
    # The folder of a claim exists in the pod only.
    if variables.get("TESSERA_REPOSITORY_PATH") == "/models":
        variables["TESSERA_REPOSITORY_PATH"] = str(ROOT / "models/bundled")
    assert server_of(objects)["args"] == ["serve", "--config", "/etc/tessera/tessera.toml"]
    checked = attempt(BINARY, "serve", "--check-config", "--config", config, **variables)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    printed = attempt(BINARY, "serve", "--print-config", "--config", config, **variables).stdout
    for setting, variable in [("grace", "TESSERA_SERVER_GRACE"), ("lame_duck", "TESSERA_SERVER_LAME_DUCK")]:
        assert re.search(rf'^{setting} = "{variables[variable]}"', printed, re.MULTILINE), printed


def test_every_variable_is_a_setting() -> None:
    """The server ignores a variable of a setting that it does not know only in sections that it does not know."""
    reference = (ROOT / "docs/reference/settings.md").read_text()
    for name in ("everything", "gpus", "daemonset"):
        for variable in environment(render(SETS[name])):
            if variable.startswith("TESSERA_"):
                section, _, key = variable.removeprefix("TESSERA_").lower().partition("_")
                _, _, described = reference.partition(f"## `[{section}]`")
                assert f"| `{key}` |" in described.partition("\n## ")[0], variable


def test_a_mistake_in_the_configuration_is_found(tmp_path: Path) -> None:
    config = tmp_path / "tessera.toml"
    objects = render({"server": {"config": "[limits]\nbody = '16 pigs'\n"}})
    config.write_text(one(objects, "ConfigMap", f"{NAME}-config")["data"]["tessera.toml"])
    checked = attempt(BINARY, "serve", "--check-config", "--config", config)
    assert checked.returncode != 0 and "limits.body" in checked.stdout + checked.stderr


@pytest.fixture
def server(tmp_path: Path) -> Tessera:
    """The server of the default values, on free loopback ports instead of those of the pod."""
    variables = {key: value for key, value in environment(render({})).items() if "127.0.0.1" not in value and "0.0.0.0" not in value}
    # Flags win over the environment. The bundled model is what the chart serves without a repository.
    variables["TESSERA_SERVER_LAME_DUCK"] = "0s"
    with Tessera(ROOT / "models/bundled", environment=variables) as running:
        running.wait_ready()
        yield running


def test_probes_and_the_first_request_of_the_notes(server: Tessera) -> None:
    container = server_of(render({}))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        with urllib.request.urlopen(server.base_url + path, timeout=5) as answer:
            assert answer.status == 200, path
    notes = helm("install", {}, "--dry-run=client").stdout.partition("NOTES:")[2]
    (line,) = [line.strip() for line in notes.splitlines() if line.strip().startswith("curl ")]
    words = [word.replace("http://127.0.0.1:8000", server.base_url) for word in shlex.split(line)]
    answer = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout)
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["digit"] == [7]


def test_secrets_are_in_force_at_their_paths(tmp_path: Path) -> None:
    """TLS and keys of the rendered environment: HTTPS for requests and metrics, plain HTTP for the agent, and no caller without a key."""
    objects = render({"server": {"tlsSecret": "tls", "keysSecret": "keys"}})
    mounted = {mount["name"]: mount["mountPath"] for mount in server_of(objects)["volumeMounts"]}
    authority = Authority(tmp_path)
    certificate, private = authority.sign("tls")
    key, line = new_key("--role", "infer")
    (tmp_path / "keys").write_text(line + "\n")
    own = {f"{mounted['tls']}/tls.crt": certificate, f"{mounted['tls']}/tls.key": private, f"{mounted['keys']}/keys": tmp_path / "keys"}
    variables = {name: str(own.get(value, value)) for name, value in environment(objects).items() if "TLS" in name or "KEYS" in name}
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    with Tessera(ROOT / "models/bundled", environment=variables) as running:

        def infer(**headers: str) -> int:
            body = (ROOT / "models/bundled/digits/sample.json").read_bytes()
            request = urllib.request.Request(f"https://{running.http_address}/v2/models/digits/infer", body, headers)
            try:
                with urllib.request.urlopen(request, timeout=10, context=trusted) as answer:
                    return answer.status
            except urllib.error.HTTPError as refused:
                return refused.code

        def ready() -> bool:
            # As the kubelet does, without a key.
            assert server_of(objects)["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
            try:
                with urllib.request.urlopen(f"https://{running.http_address}/v2/health/ready", timeout=5, context=trusted):
                    return True
            except OSError:
                return False

        until(ready, "the server is ready", 60)
        assert infer() == 401
        assert infer(**{"x-api-key": key}) == 200
        # The agent in the same pod speaks plain HTTP.
        with urllib.request.urlopen(f"http://{running.announced['admin']}/v2/health/live", timeout=5) as answer:
            assert answer.status == 200


def test_the_notes_warn_of_risks() -> None:
    def notes(values: Object) -> str:
        return helm("install", values, "--dry-run=client").stdout.partition("NOTES:")[2]

    assert "WARNING: with one replica" in notes({}) and "WARNING" not in notes({"server": {"replicas": 2}})
    public = {"replicas": 2, "service": {"type": "LoadBalancer"}}
    assert "WARNING: the service is reachable" in notes({"server": public})
    protected = notes({"server": {**public, "keysSecret": "keys", "tlsSecret": "tls"}})
    assert "WARNING" not in protected and "curl -s https://" in protected and "authorization: Bearer" in protected
