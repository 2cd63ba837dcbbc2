"""`tessera plan` with families, compared with an integer program that HiGHS solves.

The program knows nothing of tessera: it counts devices by how they are divided into gpulets, each of which runs batches of one
variant, and it finds the lowest cost at which these gpulets answer all requests with the quality that was asked for.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from pathlib import Path

import highspy
import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TESSERA_BIN", str(ROOT / "target" / "release" / "tessera"))
BATCHES = (1, 2, 4, 8, 16)


class Question:
    """Two types of device, two or three variants of one model, and a load."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.kinds = {
            name: {
                "units": draw.choice((1, 2, 3, 4)),
                "speed": draw.uniform(0.5, 4.0),
                "cost": round(draw.uniform(0.2, 3.0), 2),
                "count": draw.randint(4, 9),
            }
            for name in ("t4", "v100")
        }
        qualities = sorted(round(draw.uniform(0.6, 0.99), 3) for _ in range(draw.choice((2, 3))))
        size = draw.uniform(1.0, 3.0)
        self.variants = {}
        for number, quality in enumerate(qualities):
            self.variants[f"v{number}"] = {"fixed": draw.uniform(0.5, 4.0) * size, "row": draw.uniform(0.5, 1.5) * size, "quality": quality}
            size *= draw.uniform(1.3, 2.5)
        self.slo_ms = draw.randint(40, 200)
        self.rate = draw.randint(100, 1500)
        self.quality_mean = round(draw.uniform(qualities[0], qualities[-1]), 3)

    def us(self, variant: str, kind: str, batch: int, units: int) -> int:
        """Microseconds of a batch on a share of a device."""
        timed, device = self.variants[variant], self.kinds[kind]
        return round(1e3 * (timed["fixed"] + timed["row"] * batch * device["units"] / units) / device["speed"])

    def write(self, folder: Path) -> Path:
        lines = []
        for variant, kind in itertools.product(self.variants, self.kinds):
            units = self.kinds[kind]["units"]
            head = {"version": 1, "model": variant, "device": kind, "engine": "linear", "source": "synthesised", "units_total": units}
            lines.append({"profile": head})
            for batch, own in itertools.product(BATCHES, range(1, units + 1)):
                us = self.us(variant, kind, batch, own)
                lines.append({"cell": {"batch": batch, "units": own, "p50_us": us, "p95_us": us, "p99_us": us, "count": 100}})
        (folder / "profiles.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        devices = "".join(
            f'[devices.{name}]\ncount = {kind["count"]}\nmemory = "16GiB"\ncost = {kind["cost"]}\n\n' for name, kind in self.kinds.items()
        )
        qualities = ", ".join(f"{name} = {variant['quality']}" for name, variant in self.variants.items())
        problem = folder / "problem.toml"
        problem.write_text(
            'profiles = "profiles.jsonl"\ninterference = "none"\n\n'
            f"{devices}[families.all]\nslo = \"{self.slo_ms}ms\"\nrate = {self.rate}\n"
            f"quality_mean = {self.quality_mean}\nvariants = {{ {qualities} }}\n"
        )
        return problem

    def capacity(self, variant: str, kind: str, units: int) -> float:
        """Most requests a second of a gpulet: in the best batch that runs twice within the objective."""
        best = 0.0
        for batch in range(1, BATCHES[-1] + 1):
            low = max(known for known in BATCHES if known <= batch)
            high = min(known for known in BATCHES if known >= batch)
            from_us, to_us = self.us(variant, kind, low, units), self.us(variant, kind, high, units)
            us = from_us if low == high else from_us + (to_us - from_us) * (batch - low) / (high - low)
            if 2 * us <= 1e3 * self.slo_ms:
                best = max(best, 1e6 * batch / us)
        return best

    def optimum(self) -> float:
        """The lowest cost, by integer programming; infinite if the devices do not suffice."""
        program = highspy.Highs()
        program.silent()
        cost, served, quality = 0, {variant: 0 for variant in self.variants}, 0
        for name, kind in self.kinds.items():
            used = 0
            for gpulets in ways(kind["units"], list(self.variants)):
                count = program.addIntegral(lb=0, ub=kind["count"])
                cost, used = cost + kind["cost"] * count, used + count
                for units, variant in gpulets:
                    served[variant] = served[variant] + self.capacity(variant, name, units) * count
            program.addConstr(used <= kind["count"])
        total = 0
        for variant, capacity in served.items():
            rate = program.addVariable(lb=0)
            program.addConstr(rate <= capacity)
            total, quality = total + rate, quality + self.variants[variant]["quality"] * rate
        program.addConstr(total == self.rate)
        program.addConstr(quality >= self.quality_mean * self.rate)
        program.setOptionValue("mip_rel_gap", 1e-6)
        program.minimize(cost)
        if program.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return float("inf")
        return program.getObjectiveValue()


def ways(units: int, variants: list[str]) -> set[tuple[tuple[int, str], ...]]:
    """All ways to divide a whole device into gpulets, each with a variant."""
    if units == 0:
        return {()}
    found = set()
    for own, variant in itertools.product(range(1, units + 1), variants):
        found |= {tuple(sorted((*rest, (own, variant)))) for rest in ways(units - own, variants)}
    return found


def planned(problem: Path) -> dict:
    done = subprocess.run([BINARY, "plan", str(problem), "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["families"]


@pytest.mark.parametrize("seed", range(24))
def test_the_bound_is_below_the_optimum_and_the_plan_close_to_it(seed: int, tmp_path: Path) -> None:
    question = Question(seed)
    optimum, families = question.optimum(), planned(question.write(tmp_path))
    best = families["policies"][0]
    if optimum == float("inf"):
        # Gpulets that several variants share in time may still suffice.
        assert best["cost"] is None or best["sound"]
        return
    assert families["cost_least"] <= optimum * (1 + 1e-6)
    assert best["sound"], best
    assert best["quality"] >= question.quality_mean - 1e-6
    print(f"\nseed {seed}: cost {best['cost']:.2f}, optimum of divided devices {optimum:.2f}, bound {families['cost_least']:.2f}")
    # One device of the cheaper type more than the optimum at most.
    assert best["cost"] <= optimum + max(kind["cost"] for kind in question.kinds.values())
