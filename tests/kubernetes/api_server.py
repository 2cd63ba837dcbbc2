"""A real Kubernetes API server, if the machine has the one that TESSERA_K8S names: custom resources with all their validation,
strict field names of all kinds, admission policies. It has no controllers, no scheduler, no kubelet and no RBAC."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from programs import attempt, program, run

Object = dict[str, Any]


def folder() -> Path | None:
    """The folder with `start.sh`, if there is one."""
    named = os.environ.get("TESSERA_K8S")
    return Path(named) if named and Path(named, "start.sh").is_file() else None


class ApiServer:
    """A running API server with its own data. As a context manager, it stops the server."""

    def __init__(self, scripts: Path, data: Path) -> None:
        self._scripts, self._data = scripts, data
        # It ends by itself after this time, also if the tests are killed.
        started = run("bash", scripts / "start.sh", "--dir", data, "--ttl", "900")
        self._kubeconfig = json.loads(started.splitlines()[-1])["kubeconfig"]

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        run("bash", self._scripts / "stop.sh", self._data)

    def attempt(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """What `kubectl` did."""
        return attempt(program("kubectl"), *arguments, given=given, KUBECONFIG=self._kubeconfig)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Output of a `kubectl` that must succeed."""
        done = self.attempt(*arguments, given=given)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def define(self, definitions: list[Object]) -> None:
        """Creates custom resource definitions, and waits until they can be used."""
        self.apply(definitions)
        names = [f"crd/{definition['metadata']['name']}" for definition in definitions]
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)

    def apply(self, objects: list[Object], *options: str) -> None:
        """Applies objects. The server refuses fields that it does not know."""
        refused = self.refusal(objects, *options)
        assert not refused, refused

    def refusal(self, objects: list[Object], *options: str) -> str:
        """Why the server refuses these objects; empty if it takes them."""
        done = self.attempt(
            "apply", "--server-side", "--force-conflicts", "--validate=strict", "--filename=-", *options,
            given=yaml.safe_dump_all(objects),
        )
        return done.stderr if done.returncode else ""
