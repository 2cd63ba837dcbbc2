"""A node: a server on a machine of its own, and its agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from fixtures.fleet import Agent
from fixtures.kubernetes import ApiServer
from fixtures.tessera import Tessera
from fleet.proof.network import BRIDGE

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
ADMIN = "127.0.0.1:8003"


class Reached:
    """The API server as nodes reach it."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        text = Path(api.kubeconfig).read_text()
        port = api.url.rsplit(":", 1)[1]
        text = re.sub(r"^( *)server: .*$", rf"\1server: https://{BRIDGE}:{port}\n\1tls-server-name: localhost", text, flags=re.M)
        file = folder / "kubeconfig"
        file.write_text(text)
        self.kubeconfig = str(file)


class Node(Tessera):
    """A server on a machine of its own, whose addresses stay the same when it is started again, and its agent."""

    def __init__(self, name: str, address: str, prefix: tuple[str, ...]) -> None:
        self.name, self._address, self._prefix = name, address, prefix
        self.http_address, self.grpc_address = f"{address}:{PORTS['http']}", f"{address}:{PORTS['grpc']}"
        self.base_url = f"http://{self.http_address}"
        self.metrics_url = f"http://{address}:{PORTS['metrics']}/metrics"
        self._folder = tempfile.TemporaryDirectory(prefix=f"tessera-{name}-")
        self._log = Path(self._folder.name) / "log"

    def start(self, repository: Path, config: str, reached: Reached) -> None:
        """Start the server and its agent."""
        folder = Path(self._folder.name)
        settings = folder / "tessera.toml"
        settings.write_text(config)
        listens = [word for port, number in PORTS.items() for word in (f"--{port}", f"{self._address}:{number}")]
        command = [*self._prefix, os.environ["TESSERA_BIN"], "serve", "--json", "--load-mode", "explicit"]
        command += ["--repository", str(repository), "--config", str(settings), *listens, "--admin", ADMIN]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        self.announced = self._first_line(60.0)
        self.agent = Agent(reached, self.name, ADMIN, folder / "state", prefix=self._prefix)  # type: ignore[arg-type]

    def kill(self) -> None:
        """End both without a chance to clean up, as if their machine failed."""
        self.process.kill()
        self.agent.kill()
        self.process.wait(10)
        self.process.returncode = 0  # `stop` expects the exit code of a drain

    def drain(self) -> int:
        """Ask both to stop, as Kubernetes does with a pod; returns the server's exit code."""
        self.process.terminate()
        self.agent.stop()
        return self.process.wait(40)

    def ready_models(self) -> set[str]:
        """Models that it serves. Empty if it does not answer."""
        request = urllib.request.Request(f"{self.base_url}/v2/repository/index", b'{"ready": true}', method="POST")
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return {row["name"] for row in json.load(answer)}
        except (urllib.error.URLError, OSError):
            return set()

    def end(self) -> None:
        """End both, whatever state they are in."""
        if hasattr(self, "agent") and self.agent.process.poll() is None:
            self.agent.kill()
        if hasattr(self, "process") and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._folder.cleanup()
