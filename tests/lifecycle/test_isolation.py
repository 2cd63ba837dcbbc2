"""Models in separate processes: what clients and operators see when such a process is killed or hangs.

The models run on ONNX Runtime or tract. No test waits for a time: each waits for something that the server reports.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from fixtures.client import Client, get
from fixtures.models import matmul_chain, place
from fixtures.partition import needs_two_cores
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

WIDTH = 256
CONFIG = """
[lanes]
cores = [[0], [1]]

[devices]
isolation = "process"

[models.left]
lanes = [0]
[models.right]
lanes = [1]
"""
ROW = [1.0] * WIDTH
# A batch is a hang after ten times the slowest batch, at least 250 ms and at most 1 s, or three times the slowest batch.
HANG_FACTOR, HANG_MS_MIN, HANG_MS_MAX, HANG_FACTOR_MIN = 10, 250, 1000, 3
# The lane is removed within this many times the hang limit.
DETECTION_MAX = 3


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("isolated")
    for name in ("left", "right", "both"):
        place(folder, name, matmul_chain(WIDTH, 4))
    return folder


def lane(server: Tessera, number: int) -> dict:
    return next(row for row in get(f"{server.base_url}/v2/lanes") if row["lane"] == number)


def is_up(server: Tessera, number: int) -> bool:
    return lane(server, number)["state"]["state"] == "up"


def until_up(server: Tessera, number: int) -> float:
    return until(lambda: is_up(server, number), f"lane {number} is up again")


def until_down(server: Tessera, number: int) -> float:
    return until(lambda: not is_up(server, number), f"the failure of lane {number} is detected")


def rotated(client: int, number: int) -> list[float]:
    """One of seven rows."""
    return [float((client + number % 5 + column) % 7) for column in range(WIDTH)]


class SameAnswers:
    """Whether equal rows always get equal answers."""

    def __init__(self) -> None:
        self._known: dict[float, list[float]] = {}

    def __call__(self, model: str, row: list[float], data: list[float]) -> bool:
        return all(abs(a - b) <= 1e-3 for a, b in zip(self._known.setdefault(row[0], data), data, strict=True))


def hang_limit_ms(reason: str) -> float:
    """The limit that applied to a batch, by the reason that the server gives for a failed lane."""
    found = re.search(r"no answer for (\d+) ms to a batch, expected ([\d.]+) ms", reason)
    assert found, reason
    waited, slowest = map(float, found.groups())
    limit = max(HANG_MS_MIN, min(HANG_FACTOR * slowest, max(HANG_MS_MAX, HANG_FACTOR_MIN * slowest)))
    assert waited <= 2 * limit, f"the server waited for {waited:.0f} ms, the limit is {limit:.0f} ms"
    return limit


def p99_ms(seconds: list[float]) -> float:
    return 1e3 * sorted(seconds)[len(seconds) * 99 // 100]


@needs_two_cores
@pytest.mark.parametrize("cause", ["killed", "stopped"])
def test_a_failed_process_affects_only_its_own_lane_and_is_restarted(repository: Path, cause: str) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        first, second = sorted(server.children())
        with Clients(server, {"left": 2, "right": 2, "both": 2}, rotated, SameAnswers(), timeout=10_000_000) as clients:
            clients.wait_for(20, "left")
            clients.wait_for(200, "right")
            known = clients.answered("right")
            failed = time.time()
            os.kill(first, signal.SIGKILL if cause == "killed" else signal.SIGSTOP)
            until_down(server, 0)
            restarted = until_up(server, 0)
            during = clients.latencies["right"][known:]
            for model in ("left", "right", "both"):
                clients.wait_for(20, model)
            assert second in server.children() and first not in server.children(), "each lane has a process"
            row = lane(server, 0)
        (event,) = server.logged("a lane failed")
        detected_ms = 1e3 * (event["time"] - failed)
        print(f"{cause}: detected after {detected_ms:.0f} ms ({event['reason']}), up again {restarted:.1f} s later; {clients.statuses}")
        print(f"p99 of the other lane: {p99_ms(clients.latencies['right'][:known]):.1f} ms before, {p99_ms(during):.1f} ms during the failure")
        # The end of a process is an event: it is detected without a timeout.
        limit_ms = hang_limit_ms(row["reason"]) if cause == "stopped" else HANG_MS_MIN
        assert detected_ms <= DETECTION_MAX * limit_ms
        assert clients.wrong == 0 and clients.cut_off == 0
        assert set(clients.statuses["right"]) == {200}, "the other lane is not affected"
        assert set(clients.statuses["both"]) == {200}, "the other lane runs the failed lane's requests"
        assert set(clients.statuses["left"]) <= {200, 503}
        assert row["deaths"] == 1 and row["reason"] == event["reason"], row
        assert ("SIGKILL" if cause == "killed" else "no answer") in row["reason"], row
        metrics = server.metrics()
        assert metrics['tessera_lane_failures_total{lane="0"}'] == 1 and metrics['tessera_lane_up{lane="0"}'] == 1


@needs_two_cores
def test_a_lane_that_fails_three_times_stays_down_until_an_operator_enables_it(repository: Path) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        _, second = sorted(server.children())
        for _ in range(3):
            until_up(server, 0)
            (victim,) = server.children() - {second}
            os.kill(victim, signal.SIGKILL)
            until_down(server, 0)
        assert lane(server, 0)["state"]["state"] == "disabled"
        assert not server.is_ready(), "`left` has no lane"
        operator = Client(server)
        status, answer, headers = operator.infer("left", [ROW])
        assert status == 503 and "retry-after" in headers, (status, answer)
        assert operator.infer("both", [ROW])[0] == 200
        assert operator.post("/v2/lanes/0/enable", {})[0] == 200
        until_up(server, 0)
        assert operator.infer("left", [ROW])[0] == 200 and server.is_ready()
        assert operator.post("/v2/lanes/7/enable", {})[0] == 404


@needs_two_cores
def test_a_model_loaded_while_a_lane_is_down_is_on_it_afterwards(repository: Path) -> None:
    with Tessera(repository, CONFIG + "\n[repository]\nload = 'explicit'\n") as server:
        operator = Client(server)
        assert operator.post("/v2/repository/models/right/load", {})[0] == 200
        first, second = sorted(server.children())
        os.kill(first, signal.SIGKILL)
        until_down(server, 0)
        status, answer, _ = operator.post("/v2/repository/models/both/load", {})
        assert status == 200, answer
        until_up(server, 0)
        os.kill(second, signal.SIGKILL)
        until_down(server, 1)
        assert operator.infer("both", [ROW])[0] == 200, "lane 0 runs the model"
        until_up(server, 1)
        assert operator.infer("right", [ROW])[0] == 200


@needs_two_cores
def test_worker_processes_end_with_the_server(repository: Path) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        workers = server.children()
    assert workers
    until(lambda: not any(running(pid) for pid in workers), "workers end after a drain")
    server = Tessera(repository, CONFIG).wait_ready()
    workers = server.children()
    server.process.kill()
    server.process.wait()
    until(lambda: not any(running(pid) for pid in workers), "workers end after their server was killed")
    server.stop()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
