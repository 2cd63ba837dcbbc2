"""The first Ctrl-C ends a run and writes its results, the second one exits immediately."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from fixtures.wait import until
from load.command import STOPPED, finish, start

LONG = ("--warmup", "0s", "--duration", "1h", "--slo", "20s")


def until_it_sends(server: Tessera, process: subprocess.Popen[str], count: int = 20) -> None:
    """Wait until the server has answered `count` more requests for `steady`."""
    before = answered(server)

    def enough() -> bool:
        assert process.poll() is None, process.communicate()
        return answered(server) >= before + count

    until(enough, f"{count} more requests")


def answered(server: Tessera) -> float:
    series = server.metrics().items()
    return sum(value for name, value in series if name.startswith("tessera_requests_total") and '"steady"' in name)


@pytest.mark.parametrize("how", [(), ("--concurrency", 2), ("--stage", "1h:1"), ("--find-capacity",)], ids=str)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_ends_the_run_and_writes_its_results(
    server: Tessera, urls: dict[str, str], tmp_path: Path, number: signal.Signals, how: tuple[object, ...]
) -> None:
    files = [tmp_path / name for name in ("out.html", "out.csv", "out.hlog")]
    long = [*LONG[:2], *LONG[4:]] if "--stage" in how else LONG
    send = ("--url", urls["http"], "--model", "steady", "--rate", 20, "--json", *long, *how)
    process = start(*send, "--report", files[0], "--csv", files[1], "--hdr", files[2])
    until_it_sends(server, process)
    process.send_signal(number)
    outcome = finish(process)
    assert outcome.code == STOPPED, outcome
    report = json.loads(outcome.out)
    total = report["total"]
    assert report["interrupted"] and total["answered"] >= 20, total
    ended = total["answered"] + sum(total["refused"].values()) + sum(total["failed"].values())
    assert total["offered"] == ended and 0 < report["measured_s"] < 600
    assert all(file.stat().st_size > 200 for file in files)


def test_the_second_signal_exits_immediately() -> None:
    """The server accepts connections and never responds, so there are no results to write."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = start("--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "--model", "m", "--timeout", "1h")
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4) == b"GET ", "the run has contacted the server, so it handles signals"
            process.send_signal(signal.SIGINT)
            # A second signal before the first one was handled has no effect.
            ended = threading.Event()
            again = threading.Thread(target=lambda: press(process, ended))
            again.start()
            outcome = finish(process)
            ended.set()
            again.join()
    assert outcome.code == STOPPED and outcome.out == "", outcome


def press(process: subprocess.Popen[str], ended: threading.Event) -> None:
    """Send Ctrl-C repeatedly."""
    while not ended.wait(0.05):
        process.send_signal(signal.SIGINT)
