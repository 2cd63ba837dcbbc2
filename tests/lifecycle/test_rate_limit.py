"""`instance_group.rate_limiter` of `config.pbtxt` on the live server."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.client import Client  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

BATCH_SECONDS = 0.2
LIMITED = 'max_batch_size: 1 instance_group [ { count: 4 rate_limiter { resources [ { name: "R1" count: 2 } ] } } ]'
LANES = "[lanes]\ncount = 4\nshared = true\n"


def repository(folder: Path, text: str) -> Path:
    echo(alpha_us=int(BATCH_SECONDS * 1e6)).place(folder, "limited")
    (folder / "limited" / "config.pbtxt").write_text(text)
    return folder


def seconds_for(server: Tessera, requests: int) -> float:
    """Time until this many concurrent requests are answered."""
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(Client(server).infer("limited", [[1.0, 2.0, 3.0, 4.0]])[0]))
        for _ in range(requests)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert codes == [200] * requests
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("total", "at_a_time"), [("", 1), ("[rate_limit]\nresources = { R1 = 4 }\n", 2)], ids=["default total", "total 4"]
)
def test_as_many_batches_run_as_hold_the_resource(tmp_path: Path, total: str, at_a_time: int) -> None:
    with Tessera(repository(tmp_path, LIMITED), LANES + total) as server:
        server.wait_ready()
        # A synthetic model takes its time whatever the machine does, so this is a lower bound on any machine.
        assert seconds_for(server, 4) >= 4 / at_a_time * BATCH_SECONDS


def test_a_model_that_needs_more_than_there_is_does_not_load(tmp_path: Path) -> None:
    config = "[rate_limit]\nresources = { R1 = 1 }\n"
    with Tessera(repository(tmp_path, LIMITED), config + "[server]\nstrict_readiness = false\n") as server:
        reasons = [row.get("reason") for row in server.announced["models"]]
        assert len(reasons) == 1 and "needs 2 of `R1`: expected at most rate_limit.resources.R1, which is 1" in reasons[0]
