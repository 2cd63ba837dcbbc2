"""Profiles that no longer hold while the server runs, as operators see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.partition import needs_two_cores, until_view, view
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients

CONFIG = """
[lanes]
cores = [[0], [1]]

[partition]
live = true
period = "200ms"
bake_time = "300ms"
profiles = ["{profiles}"]

[models.quick]
slo = "80ms"
"""
# Microseconds of a batch by its profile: constant and per row.
PROFILED = (4_000, 2_000)


def profile(folder: Path) -> Path:
    """A profile of `quick` on two cores, as `tessera profile` would have written it."""
    header = {"version": 1, "model": "quick", "device": "cpu", "engine": "synthetic", "source": "typed_in", "units_total": 2}
    lines: list[dict] = [{"profile": header}]
    for rows in (1, 2, 4, 8):
        for units in (1, 2):
            times = {f"p{part}_us": PROFILED[0] + PROFILED[1] * rows for part in (50, 95, 99)}
            lines.append({"cell": {"batch": rows, "units": units, **times, "count": 100}})
    path = folder / "cpu.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@needs_two_cores
@pytest.mark.parametrize("factor", [1.0, 1.8])
def test_a_model_that_is_slower_than_its_profile_is_planned_with_its_measured_times(tmp_path: Path, factor: float) -> None:
    alpha, beta = (int(factor * time) for time in PROFILED)
    echo(alpha, beta, max_batch=8).place(tmp_path / "models", "quick")
    with Tessera(tmp_path / "models", CONFIG.format(profiles=profile(tmp_path))) as server:
        server.wait_ready()
        with Clients(server, {"quick": 1}, timeout=5_000_000) as traffic:
            if factor == 1.0:
                until_view(server, lambda seen: seen["epoch"] > 0, "a plan")
                traffic.wait_for(500)
                assert "profile_corrections" not in view(server), view(server)
                assert not server.logged("batches take this factor"), server.logged("batches take this factor")
            else:
                seen = until_view(server, lambda seen: seen.get("profile_corrections"), "a corrected profile")
                (row,) = seen["profile_corrections"]
                print(row)
                assert (row["model"], row["device_type"], row["replaced_cells"]) == ("quick", "cpu", 0), row
                assert factor - 0.2 < row["factor"] < factor + 0.3, row
                until_view(server, lambda _: server.logged("batches take this factor"), "a warning")
                (line,) = server.logged("batches take this factor")
                assert line["level"] == "WARN" and "tessera profile --fresh --model quick" in line["message"], line
                shown = server.metric("tessera_profile_factor", model="quick", device_type="cpu")
                assert factor - 0.2 < shown < factor + 0.3, shown
        traffic.assert_all_answered()
        assert server.metric("tessera_invariant_violations_total") == 0
