"""Priority levels and queue policies of `config.pbtxt` on the live server."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.client import Client  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

MODEL = "levels"
CONFIG = """
max_batch_size: 1
dynamic_batching {
  priority_levels: 3
  default_priority_level: 3
  default_queue_policy { max_queue_size: 1 }
  priority_queue_policy {
    key: 1
    value { timeout_action: REJECT default_timeout_microseconds: 30000 }
  }
  priority_queue_policy {
    key: 2
    value { timeout_action: DELAY default_timeout_microseconds: 20000000 allow_timeout_override: true }
  }
}
"""
BATCH_SECONDS = 0.4


class Requests:
    """Requests in threads of their own, in the order of their answers."""

    def __init__(self, server: Tessera) -> None:
        self.server = server
        self.answers: list[tuple[str, int, dict]] = []
        self._threads: list[threading.Thread] = []

    def send(self, name: str, **parameters: object) -> None:
        def ask() -> None:
            status, answer, _ = Client(self.server).infer(MODEL, [[1.0, 2.0, 3.0, 4.0]], **parameters)
            self.answers.append((name, status, answer))

        self._threads.append(threading.Thread(target=ask))
        self._threads[-1].start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(30)

    def open(self) -> float:
        return self.server.metric("tessera_requests_in_flight")


def test_each_level_has_its_own_timeout_action_and_queue_size(tmp_path: Path) -> None:
    echo(alpha_us=int(BATCH_SECONDS * 1e6)).place(tmp_path, MODEL)
    (tmp_path / MODEL / "config.pbtxt").write_text(CONFIG)
    with Tessera(tmp_path, "[lanes]\ncount = 1\n") as server:
        server.wait_ready()
        requests = Requests(server)
        requests.send("running", priority=2)
        until(lambda: requests.open() == 1, "the lane is busy")
        requests.send("reject", priority=1)
        until(lambda: requests.answers, "a request that cannot meet its timeout is rejected immediately")
        requests.send("delay", priority=2, timeout=20_000)
        requests.send("in time", priority=2)
        # Level 9 does not exist, so this one has the default level, 3.
        requests.send("last level", priority=9)
        until(lambda: requests.open() == 4, "one request runs and three wait")
        status, answer, _ = Client(server).infer(MODEL, [[1.0, 2.0, 3.0, 4.0]])
        requests.wait()
    assert (status, answer["error"]) == (503, f"model `{MODEL}`: its queue is full")
    codes = {name: status for name, status, _ in requests.answers}
    assert codes.pop("reject") in (503, 504), requests.answers
    assert set(codes.values()) == {200}, requests.answers
    order = [name for name, _, _ in requests.answers if name != "reject"]
    assert order == ["running", "in time", "delay", "last level"]
