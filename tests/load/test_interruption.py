"""Ctrl-C: the first writes what was measured, the second ends at once."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from load.command import STOPPED, finish, start

LONG = ("--warmup", "0s", "--duration", "1h", "--slo", "20s")


def when_it_sends(server: Tessera, model: str, process: subprocess.Popen[str], count: int = 20) -> None:
    """Wait until the server has answered that many more requests; no longer than the run goes on."""
    series = "tessera_requests_total"
    before = answered(server, series, model)
    while answered(server, series, model) < before + count:
        assert process.poll() is None, process.communicate()


def answered(server: Tessera, metric: str, model: str) -> float:
    own = {name: value for name, value in server.metrics().items() if name.startswith(metric) and f'"{model}"' in name}
    return sum(own.values())


@pytest.mark.parametrize("how", [(), ("--concurrency", 2), ("--stage", "1h:1"), ("--find-capacity",)], ids=str)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_writes_what_was_measured(
    server: Tessera, urls: dict[str, str], tmp_path: Path, number: signal.Signals, how: tuple[object, ...]
) -> None:
    files = [tmp_path / name for name in ("out.html", "out.csv", "out.hlog")]
    long = [*LONG[:2], *LONG[4:]] if "--stage" in how else LONG
    send = ("--url", urls["http"], "--model", "steady", "--rate", 20, "--json", *long, *how)
    process = start(*send, "--report", files[0], "--csv", files[1], "--hdr", files[2])
    when_it_sends(server, "steady", process)
    process.send_signal(number)
    outcome = finish(process)
    assert outcome.code == STOPPED, outcome
    report = json.loads(outcome.out)
    total = report["total"]
    assert report["interrupted"] and total["answered"] >= 20, total
    ended = total["answered"] + sum(total["refused"].values()) + sum(total["failed"].values())
    assert total["offered"] == ended and 0 < report["measured_s"] < 600
    assert all(file.stat().st_size > 200 for file in files)


def test_the_second_signal_ends_at_once() -> None:
    """Against a server that takes connections and says nothing: there is nothing to write, and nobody to wait for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = start("--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "--model", "m", "--timeout", "1h")
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4) == b"GET ", "the run asks who the server is, so it listens for signals"
            process.send_signal(signal.SIGINT)
            # A signal that is sent while the first is not yet looked at is the same signal.
            ended = threading.Event()
            again = threading.Thread(target=lambda: press(process, ended))
            again.start()
            outcome = finish(process)
            ended.set()
            again.join()
    assert outcome.code == STOPPED and outcome.out == "", outcome


def press(process: subprocess.Popen[str], ended: threading.Event) -> None:
    """Press Ctrl-C again and again, as people do."""
    while not ended.wait(0.05):
        process.send_signal(signal.SIGINT)
