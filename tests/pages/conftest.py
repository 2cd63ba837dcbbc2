"""The browser, and every page and picture that the binary writes, of small inputs that have something of everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.synthetic import Synthetic  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from pages.chromium import Chromium  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = ROOT / "gpulet" / "core" / "examples" / "igniter-12.toml"
PROFILES = PROBLEM.with_name("igniter-v100.jsonl")
# Time limit of one command, in seconds.
SECONDS = 60

POLICIES = """
name = "policies"
about = "two models on two lanes, one of which fails; batches vary"
seed = 7
duration = "4s"
warmup = "1s"
[lanes]
count = 2
noise = { cv = 0.05, spread = 0.1 }
[[lanes.failures]]
lane = 1
from = "2s"
until = "3s"
[models.resnet]
count = 2
slo = "25ms"
profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }
rate = 500.0
[models.bert]
slo = "100ms"
profile = { alpha = "2ms", beta = "9ms", max_batch = 16 }
rate = 100.0
"""

DEVICES = """
name = "devices"
about = "two models on up to four V100s"
seed = 7
duration = "16s"
warmup = "4s"
[devices.v100]
count = 4
memory = "16GiB"
[partition]
profiles = "{profiles}"
[models.resnet50]
slo = "100ms"
rate = 300.0
[models.alexnet]
slo = "50ms"
rate = 300.0
"""


def tessera(*arguments: object) -> str:
    """Runs the binary, which must succeed, and returns what it printed."""
    command = [os.environ["TESSERA_BIN"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    # A client that could not keep up still writes its page, with a note that says so.
    assert done.returncode == 0 or (done.returncode == 3 and arguments[0] == "load"), f"{command}: {done.stderr}"
    return done.stdout


def _simulations(folder: Path) -> None:
    workloads = folder / "workloads"
    workloads.mkdir()
    policies, devices = workloads / "policies.toml", folder / "devices.toml"
    policies.write_text(POLICIES)
    devices.write_text(DEVICES.format(profiles=PROFILES))
    compared = ("--policy", "deadline", "--policy", "triton:max_delay=2ms,preferred=4|8", "--policy", "nexus", "--policy", "clockwork")
    tessera("simulate", policies, *compared, "--report", folder / "policies.html")
    scalers = ("--scaling", "attainment", "--scaling", "static", "--scaling", "gpulet")
    tessera("simulate", devices, *scalers, "--report", folder / "devices.html")
    tessera("simulate", ROOT / "loadtest" / "tenants" / "aggressor.toml", "--report", folder / "tenants.html")
    tessera("arena", "--workloads", workloads, "--seeds", 1, "--out", folder / "arena.md")


def _plans(folder: Path) -> None:
    for policy in ("tessera", "temporal", "gpulet"):
        tessera("plan", PROBLEM, "--policy", policy, "--svg", folder / f"plan-{policy}.svg")


def _measurements(folder: Path) -> None:
    repository = folder / "repository"
    Synthetic(alpha_us=4_000, beta_us=500, max_batch=8).place(repository, "resnet")
    Synthetic(alpha_us=8_000, max_batch=4).place(repository, "bert")
    config = '[models.resnet]\nslo = "50ms"\n[models.bert]\nslo = "60ms"\n'
    workload = folder / "load.toml"
    workload.write_text(
        'name = "load"\nduration = "3s"\n[models.resnet]\nslo = "50ms"\nrate = 60.0\n[models.bert]\nslo = "60ms"\nrate = 250.0\n'
    )
    with Tessera(repository, config, ["--lanes", "1"]) as server:
        server.wait_ready()
        url = ("--url", f"http://{server.http_address}")
        tessera("load", workload, *url, "--report", folder / "load.html")
        search = ("--find-capacity", "--duration", "1s", "--warmup", "0s", "--slo", "50ms", "--rate", 50)
        tessera("load", *url, "--model", "resnet", *search, "--report", folder / "capacity.html")
    short = ("--batches", "1,2,4", "--time", "20ms", "--out", folder / "profile.jsonl")
    tessera("profile", "--repository", repository, *short, "--report", folder / "profile.html", "--svg", folder / "profile.svg")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files by their names."""
    folder = tmp_path_factory.mktemp("pages")
    for write in (_simulations, _plans, _measurements):
        write(folder)
    found = [*folder.glob("*.html"), *folder.glob("*.svg"), *folder.glob("arena/*.svg")]
    return {path.name: path for path in found}


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium(os.environ["CHROMIUM"]) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept."""
    folder = ROOT / "target" / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
