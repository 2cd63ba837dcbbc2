"""A scrape of `/metrics` shows the state of that moment."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.client import Client  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

# Longer than the interval at which the server updates gauges by itself.
BATCH_SECONDS = 1.3


def test_a_lane_is_idle_as_soon_as_its_last_request_is_answered(tmp_path: Path) -> None:
    echo(alpha_us=int(BATCH_SECONDS * 1e6)).place(tmp_path, "slow")
    with Tessera(tmp_path, "[lanes]\ncount = 1\n") as server:
        server.wait_ready()
        assert Client(server).infer("slow", [[1.0, 2.0, 3.0, 4.0]])[0] == 200
        assert server.metric("tessera_lane_busy", lane="0") == 0
