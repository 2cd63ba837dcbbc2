"""Models in processes of their own: what clients and operators see when such a process is killed, hangs or crawls.

The models are real, on ONNX Runtime or tract. No test waits by the clock: each waits for what the server says.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client, get  # noqa: E402
from fixtures.models import matmul_chain, place  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

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
RETRYABLE = {503}

needs_two_cores = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="two lanes need cores 0 and 1"
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("isolated")
    for name in ("left", "right", "both"):
        place(folder, name, matmul_chain(WIDTH, 4))
    return folder


def workers(server: Tessera) -> set[int]:
    """Processes that the server started and that run."""
    found = set()
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except OSError:
            continue  # a thread that ended meanwhile
    return found


def lane(server: Tessera, number: int) -> dict:
    return next(row for row in get(f"{server.base_url}/v2/lanes") if row["lane"] == number)


def state(server: Tessera, number: int) -> str:
    return lane(server, number)["state"]["state"]


def until(condition, what: str, seconds: float = 30.0) -> float:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"not within {seconds:.0f} s: {what}"
    return time.monotonic() - begun


class Traffic:
    """Clients that send one request after another, each with its own numbers, and check what comes back."""

    def __init__(self, server: Tessera, crowd: dict[str, int]) -> None:
        self.statuses: dict[str, Counter] = {name: Counter() for name in crowd}
        self.latencies: dict[str, list[float]] = {name: [] for name in crowd}
        self.wrong = 0
        self._server = server
        self._stop = threading.Event()
        each = (name for name, count in crowd.items() for _ in range(count))
        self._threads = [threading.Thread(target=self._send, args=(name, at)) for at, name in enumerate(each)]
        for thread in self._threads:
            thread.start()

    def _send(self, model: str, at: int) -> None:
        client = Client(self._server)
        known: dict[int, list[float]] = {}
        number = 0
        while not self._stop.is_set():
            number = (number + 1) % 5
            row = [float((at + number + column) % 7) for column in range(WIDTH)]
            begun = time.monotonic()
            status, answer, _ = client.infer(model, [row], timeout=10_000_000)
            self.statuses[model][status] += 1
            if status == 200:
                self.latencies[model].append(time.monotonic() - begun)
                data = answer["outputs"][0]["data"]
                first = known.setdefault(number, data)
                self.wrong += any(abs(a - b) > 1e-3 for a, b in zip(first, data, strict=True))

    def answered(self, model: str) -> int:
        return self.statuses[model][200]

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request was never answered"


def until_more(clients: Traffic, model: str, count: int) -> list[float]:
    """Latencies of the next answers of a model."""
    before = clients.answered(model)
    until(lambda: clients.answered(model) >= before + count, f"{count} answers of {model}")
    return clients.latencies[model][before:]


def p99_ms(seconds: list[float]) -> float:
    return 1e3 * sorted(seconds)[len(seconds) * 99 // 100]


@contextmanager
def traffic(server: Tessera, crowd: dict[str, int]) -> Iterator[Traffic]:
    clients = Traffic(server, crowd)
    try:
        for model in crowd:
            until(lambda: clients.answered(model) > 20, f"answers of {model}")
        yield clients
    finally:
        clients.end()


@needs_two_cores
@pytest.mark.parametrize("cause", ["killed", "stopped"])
def test_a_lost_process_takes_only_its_own_lane_with_it_and_comes_back(repository: Path, cause: str) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        first, second = sorted(workers(server))
        with traffic(server, {"left": 2, "right": 2, "both": 2}) as clients:
            quiet = p99_ms(until_more(clients, "right", 200))
            known = clients.answered("right")
            os.kill(first, signal.SIGKILL if cause == "killed" else signal.SIGSTOP)
            noticed = until(lambda: state(server, 0) != "up", "the loss is noticed")
            back = until(lambda: state(server, 0) == "up", "the lane is up again")
            beside = p99_ms(clients.latencies["right"][known:])
            for model in ("left", "right", "both"):
                until_more(clients, model, 20)
            assert second in workers(server) and first not in workers(server), "each lane has a process"
            row = lane(server, 0)
        print(f"{cause}: noticed after {1e3 * noticed:.0f} ms, up again {back:.1f} s later; {dict(clients.statuses)}")
        print(f"p99 of the neighbour: {quiet:.1f} ms before, {beside:.1f} ms until the lane was back")
        assert noticed <= 1.2, "found within a second, and told"
        assert clients.wrong == 0
        assert set(clients.statuses["right"]) == {200}, "the neighbour saw nothing"
        assert set(clients.statuses["both"]) == {200}, "the other lane ran what the lost one had"
        assert set(clients.statuses["left"]) <= {200} | RETRYABLE
        assert row["deaths"] == 1 and ("SIGKILL" if cause == "killed" else "no answer") in row["reason"], row
        metrics = server.metrics()
        assert metrics['tessera_lane_losses_total{lane="0"}'] == 1 and metrics['tessera_lane_up{lane="0"}'] == 1


@needs_two_cores
def test_a_process_that_dies_too_often_stays_down_until_an_operator_says_otherwise(repository: Path) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        _, second = sorted(workers(server))
        for _ in range(3):
            until(lambda: state(server, 0) == "up", "the lane is up")
            (victim,) = workers(server) - {second}
            os.kill(victim, signal.SIGKILL)
            until(lambda: state(server, 0) != "up", "the loss is noticed")
        assert state(server, 0) == "disabled"
        assert not server.is_ready(), "`left` runs nowhere"
        operator = Client(server)
        status, answer, headers = operator.infer("left", [[1.0] * WIDTH])
        assert status == 503 and "retry-after" in headers, (status, answer)
        assert operator.infer("both", [[1.0] * WIDTH])[0] == 200
        assert operator.post("/v2/lanes/0/enable", {})[0] == 200
        until(lambda: state(server, 0) == "up", "the operator's word counts")
        assert operator.infer("left", [[1.0] * WIDTH])[0] == 200 and server.is_ready()
        assert operator.post("/v2/lanes/7/enable", {})[0] == 404


@needs_two_cores
def test_models_that_come_while_a_lane_is_down_are_on_it_afterwards(repository: Path) -> None:
    with Tessera(repository, CONFIG + "\n[repository]\nload = 'explicit'\n") as server:
        operator = Client(server)
        assert operator.post("/v2/repository/models/right/load", {})[0] == 200
        first, second = sorted(workers(server))
        os.kill(first, signal.SIGKILL)
        until(lambda: state(server, 0) != "up", "the loss is noticed")
        status, answer, _ = operator.post("/v2/repository/models/both/load", {})
        assert status == 200, answer
        until(lambda: state(server, 0) == "up", "the lane is up again")
        os.kill(second, signal.SIGKILL)
        until(lambda: state(server, 1) != "up", "the loss is noticed")
        assert operator.infer("both", [[1.0] * WIDTH])[0] == 200, "lane 0 has it"
        until(lambda: state(server, 1) == "up", "the lane is up again")
        assert operator.infer("right", [[1.0] * WIDTH])[0] == 200


@needs_two_cores
def test_the_processes_end_with_the_server_however_it_ends(repository: Path) -> None:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready()
        left = workers(server)
    assert left
    until(lambda: not any(running(pid) for pid in left), "a drain ends them")
    server = Tessera(repository, CONFIG).wait_ready()
    left = workers(server)
    server.process.kill()
    server.process.wait()
    until(lambda: not any(running(pid) for pid in left), "they notice that nobody is there any more")
    server.stop()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
