"""`partition.variants`: which variants of a family get gpulets, on devices of unequal speed and cost, while the server runs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client  # noqa: E402
from fixtures.partition import placed, until_view, view  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

QUALITIES = {"large": 0.99, "small": 0.9}
# Milliseconds of a row on a whole slow device; the fast one takes a quarter.
ROW_MS = {"large": 20.0, "small": 2.0}
SPEEDS = {"slow": 1.0, "fast": 4.0}
UNITS = 4


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two models with measured qualities, and their profiles on two types of device."""
    models, lines = tmp_path / "models", []
    for name, row_ms in ROW_MS.items():
        echo(int(1e3 * row_ms)).place(models, name)
        digest = hashlib.sha256((models / name / "1" / "model.toml").read_bytes()).hexdigest()
        quality = {"quality": QUALITIES[name], "kind": "accuracy", "rows": 100, "digest": digest}
        (models / name / "quality.json").write_text(json.dumps(quality))
        for kind, speed in SPEEDS.items():
            head = {"version": 1, "model": name, "device": kind, "engine": "test", "source": "synthesised", "units_total": UNITS}
            lines.append({"profile": head})
            for batch in (1, 2, 4):
                for units in range(1, UNITS + 1):
                    us = 1e3 * row_ms * batch * UNITS / units / speed
                    lines.append({"cell": {"batch": batch, "units": units, "p50_us": us, "p95_us": us, "p99_us": us, "count": 100}})
    (tmp_path / "profiles.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return models


def config(repository: Path, variants: str, more: str = "") -> str:
    return f"""
        [devices]
        emulated = [
          {{ kind = "slow", memory = "1GiB", count = 2, cost = 0.2 }},
          {{ kind = "fast", memory = "1GiB", cost = 1.0 }},
        ]
        [partition]
        live = true
        profiles = ["{repository.parent}/profiles.jsonl"]
        scaling = "nanily"
        period = "200ms"
        bake_time = "100ms"
        {variants}
        [families.echo]
        slo = "400ms"
        variants = ["large", "small"]
        {more}
        """


def load(server: Tessera, rate: float, seconds: int) -> subprocess.Popen:
    command = [os.environ["TESSERA_BIN"], "load", "-m", "echo", "--rate", rate, "--slo", "400ms", "--duration", f"{seconds}s", "--json"]
    command += ["--warmup", "1s", "--url", server.base_url]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def kinds(seen: dict) -> set[str]:
    """Types of the devices that have gpulets."""
    return {"fast" if gpulet["device"] == "gpu2" else "slow" for gpulet in seen["gpulets"]}


def test_plans_take_the_cheapest_devices_that_keep_the_mean_quality(repository: Path) -> None:
    with Tessera(repository, config(repository, 'variants = "tessera"', "quality_mean = 0.95")) as server:
        until_view(server, lambda seen: seen["epoch"] > 1 and not seen["changing"] and kinds(seen) == {"slow"}, "one slow device")
        running = load(server, 300, 20)
        # More of the large one than two slow devices answer.
        seen = until_view(server, lambda seen: not seen["changing"] and seen["families"][0]["target"] > 250 and "fast" in kinds(seen), "the fast device")
        family = seen["families"][0]
        assert (family["name"], family["policy"]) == ("echo", "tessera")
        assert family["quality_planned"] >= 0.95 - 1e-6, family
        assert sum(variant["planned"] for variant in family["variants"]) == pytest.approx(family["target"], rel=1e-3)
        assert {row["reason"] for row in seen["models"]} == {"its part of the plan of its family"}
        answer, _ = running.communicate(timeout=60)
        # Half of the run is the time until the load is known and the models are loaded.
        assert json.loads(answer)["models"][0]["figures"]["attainment"] > 0.5, answer
        until_view(server, lambda seen: not seen["changing"] and kinds(seen) == {"slow"}, "one slow device again")


@pytest.mark.parametrize("policy", ["infaas", "mark", "proportional", "iris", "proteus"])
def test_published_policies_plan_the_variant_that_has_the_quality(repository: Path, policy: str) -> None:
    with Tessera(repository, config(repository, f'variants = "{policy}"', "quality_mean = 0.99")) as server:
        seen = until_view(server, lambda seen: seen["epoch"] > 1 and not seen["changing"], "a plan")
        assert placed(server) == {"large"}, seen["gpulets"]
        client = Client(server)
        status, answer, _ = client.infer("echo", [[1.0, 2.0, 3.0, 4.0]])
        assert (status, answer["parameters"]["variant"]) == (200, "large"), answer
        # A request for the other one waits until it has a gpulet.
        status, answer, _ = client.infer("small", [[1.0, 2.0, 3.0, 4.0]])
        assert status == 200, answer
        until_view(server, lambda _: placed(server) == {"large"}, "the variants that the policy chooses")
        assert "problem" not in view(server), view(server)["problem"]


def test_settings_that_cannot_have_an_effect_are_named(repository: Path, tmp_path: Path) -> None:
    for variants, more, said in [
        ('variants = "best"', "", "partition.variants: `best`: expected one of tessera, infaas, mark"),
        ('variants = "tessera"', "quality_mean = 2", "families.echo.quality_mean: expected 0 to 1, got 2"),
        ('variants = "tessera"', '[families.twice]\nvariants = ["small"]', "`small` is in families `echo` and `twice`"),
    ]:
        file = tmp_path / "tessera.toml"
        file.write_text(config(repository, variants, more))
        told = subprocess.run(
            [os.environ["TESSERA_BIN"], "check", "--config", str(file), "--repository", str(repository)],
            capture_output=True, text=True, timeout=60, check=False,
        )
        assert told.returncode == 1 and said in told.stdout + told.stderr, (said, told.stdout, told.stderr)
    file.write_text(config(repository, 'variants = "tessera"').replace("live = true", "live = false"))
    told = subprocess.run(
        [os.environ["TESSERA_BIN"], "check", "--config", str(file), "--repository", str(repository)],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert "partition.variants: has no effect without `partition.live`" in told.stdout + told.stderr, told.stderr
