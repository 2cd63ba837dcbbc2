"""Another server as a child process on free loopback ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from fixtures.wait import until


class CannotRun(Exception):
    """The server cannot run here; the text says why."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, for servers that cannot pick their own."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Child:
    """A running server. As a context manager, it stops the server and all its children."""

    def __init__(self, name: str, http: int, grpc: int, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.base_url = f"http://127.0.0.1:{http}"
        self.http_address = f"127.0.0.1:{http}"
        self.grpc_address = f"127.0.0.1:{grpc}"
        self._log = tempfile.NamedTemporaryFile("w+", prefix=f"{name}-", suffix=".log")
        self.process = subprocess.Popen(
            command, env=environment, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def wait_ready(self, seconds: float = 120.0) -> None:
        """Wait until the server is ready. One that runs and is not is a failure: this machine can run it."""

        def ready() -> bool:
            if self.process.poll() is not None:
                raise CannotRun(f"{self.name} ended with {self.process.returncode}:\n{self.log()[-2000:]}")
            try:
                with urllib.request.urlopen(f"{self.base_url}/v2/health/ready", timeout=2) as answer:
                    return answer.status == 200
            except (urllib.error.URLError, OSError):
                return False

        until(ready, lambda: f"{self.name} is ready:\n{self.log()[-2000:]}", seconds)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # Remaining children: the process group was created above.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
