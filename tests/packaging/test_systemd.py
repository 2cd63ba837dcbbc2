"""The systemd unit, and what the server tells systemd: this test plays its side of the socket."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until
from programs import ROOT, need, run

UNIT = ROOT / "deploy/systemd/tessera.service"
# Of 10. systemd calls up to 2 "OK" and more than 5 "MEDIUM" to "UNSAFE".
EXPOSURE_MAX = 1.7
WATCHDOG_SECONDS = 0.6


class ServiceManager:
    """The socket of a service manager."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))

    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}

    def next(self, key: str, seconds: float = 30.0) -> dict[str, str]:
        """The next message with this key. Those before it are only signs of life."""
        deadline = time.monotonic() + seconds
        while True:
            message = self._receive(deadline, key)
            if key in message:
                return message
            assert message == {"WATCHDOG": "1"}, f"expected {key}, got {message}"

    def _receive(self, deadline: float, key: str) -> dict[str, str]:
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            text = self.socket.recv(65536).decode()
        except TimeoutError:
            raise AssertionError(f"no message with {key} in time") from None
        return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    manager = ServiceManager(tmp_path)
    yield manager
    manager.socket.close()


def test_the_server_tells_systemd_when_it_is_ready_reloads_lives_and_stops(manager: ServiceManager, tmp_path: Path) -> None:
    echo(alpha_us=1000).place(tmp_path / "repository", "m")
    with Tessera(tmp_path / "repository", environment=manager.environment()) as server:
        assert manager.next("READY") == {"READY": "1", "STATUS": "serving 1 model"}
        assert server.is_ready()

        begun = time.monotonic()
        signs = [manager.next("WATCHDOG", WATCHDOG_SECONDS) for _ in range(4)]
        print(f"\nsystemd: 4 signs of life in {time.monotonic() - begun:.2f} s with a watchdog of {WATCHDOG_SECONDS} s")
        assert signs == [{"WATCHDOG": "1"}] * 4

        os.kill(server.pid, signal.SIGHUP)
        reloading = manager.next("RELOADING")
        assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"}
        assert int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
        assert manager.next("READY")["STATUS"] == "serving 1 model"

        os.kill(server.pid, signal.SIGTERM)
        assert manager.next("STOPPING")["STOPPING"] == "1"


def test_a_reload_while_models_load_does_not_say_that_the_server_has_started(manager: ServiceManager, tmp_path: Path) -> None:
    # Its batches are measured several times before it serves.
    echo(alpha_us=300_000).place(tmp_path / "repository", "m")
    before = children()
    with ThreadPoolExecutor() as starting:
        started = starting.submit(Tessera, tmp_path / "repository", environment=manager.environment())
        manager.next("WATCHDOG")
        (pid,) = children() - before
        os.kill(pid, signal.SIGHUP)
        assert manager.next("READY")["STATUS"] == "serving 1 model"
        with started.result() as server:
            until(lambda: server.logged("configuration reloaded"), "the configuration is reloaded")


def children() -> set[int]:
    """Processes that this one has started."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_a_model_that_does_not_load_is_in_the_status(manager: ServiceManager, tmp_path: Path) -> None:
    echo(alpha_us=1000).place(tmp_path / "repository", "good")
    (tmp_path / "repository" / "bad" / "1").mkdir(parents=True)
    (tmp_path / "repository" / "bad" / "1" / "model.onnx").write_bytes(b"not a model")
    with Tessera(tmp_path / "repository", environment=manager.environment()):
        status = manager.next("READY")["STATUS"]
        assert status.startswith("serving 1 model; not ready: ") and "bad" in status


def test_a_service_manager_that_cannot_be_reached_is_logged_and_changes_nothing(tmp_path: Path) -> None:
    echo(alpha_us=1000).place(tmp_path / "repository", "m")
    with Tessera(tmp_path / "repository", environment={"NOTIFY_SOCKET": str(tmp_path / "absent")}) as server:
        server.wait_ready()
        assert "cannot notify the service manager at NOTIFY_SOCKET" in server.log()


def test_the_unit_is_valid_and_leaves_little_exposed(tmp_path: Path) -> None:
    need("systemd-analyze")
    text = UNIT.read_text()
    # The check wants programs to exist.
    (tmp_path / UNIT.name).write_text(text.replace("/usr/local/bin/tessera", os.environ["TESSERA_BIN"]))
    run("systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name)
    report = run("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for tessera.service: ([\d.]+)", report)
    assert found, report
    print(f"\nsystemd: exposure {found[1]} of 10")
    assert float(found[1]) <= EXPOSURE_MAX, report
    assert re.search(r"^Type=notify$", text, re.MULTILINE) and re.search(r"^WatchdogSec=\d+s$", text, re.MULTILINE)
