"""What `tessera load` prints for models with free dimensions: a command that runs when it is copied into a shell."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures import models
from fixtures.graphs import recogniser
from fixtures.tessera import Tessera
from load.command import FAILED, LATE, RAN, SECONDS, load

WARM_UP = """max_batch_size: 8
model_warmup { name: "usual" batch_size: 1
  inputs { key: "image" value { data_type: TYPE_FP32 dims: [1, 48, 192] random_data: true } } }
"""
DECLARED = """max_batch_size: 8
input { name: "image" data_type: TYPE_FP32 dims: [1, 48, 160] }
"""
OPEN = ("batch", 1, "height", "width")
# Model: its graph and config.pbtxt, and what the hint must say.
REPOSITORY = {
    "warmed": (recogniser(), WARM_UP, ("--shape image=1x1x48x192", "warm-up samples")),
    "declared": (recogniser(), DECLARED, ("--shape image=1x1x48x160", "dims of the model's configuration")),
    "asked": (recogniser(), "", ("--shape image=1x1x48x96", "earlier requests")),
    "unknown": (recogniser(OPEN), "", ("--shape image=1x1x48x48", "trying usual ones")),
    "spaced": (recogniser(name="my image"), "", ("--shape 'my image=1x1x48x32'",)),
}
SHORT = ("--duration", "300ms", "--warmup", "0s", "--slo", "20s")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    repository = tmp_path_factory.mktemp("free")
    for name, (graph, config, _) in REPOSITORY.items():
        models.place(repository, name, graph)
        if config:
            (repository / name / "config.pbtxt").write_text(config)
    models.place(repository, "identity", models.fixtures()["identity_fp32"])
    with Tessera(repository) as running:
        yield running.wait_ready()


def ask(server: Tessera, model: str, width: int) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 48, width], "data": [0.0] * (48 * width)}
    request = urllib.request.Request(
        f"{server.base_url}/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def printed(said: str) -> str:
    """The command in an error message: its last part in backticks."""
    command = said.strip().rsplit("`", 2)[1]
    assert command.startswith("tessera load "), said
    return command


def copied(command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as a shell does, with `tessera` on the path."""
    (tmp_path / "tessera").symlink_to(os.environ["TESSERA_BIN"])
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", REPOSITORY)
def test_the_printed_command_runs(server: Tessera, tmp_path: Path, model: str, protocol: str) -> None:
    says = REPOSITORY[model][2]
    if model == "asked":
        if protocol == "grpc":
            says = ("--shape image=1x1x48x32", "trying usual ones")
        for width in (96, 96, 64):
            ask(server, model, width)
    url = server.base_url if protocol == "http" else f"grpc://{server.grpc_address}"
    outcome = load("--url", url, "--model", model, "--json", *SHORT)
    assert outcome.code == FAILED and all(words in outcome.said for words in says), outcome
    done = copied(printed(outcome.said), tmp_path)
    assert done.returncode in (RAN, LATE), done
    total = json.loads(done.stdout)["total"]
    assert total["offered"] > 0 and total["answered"] == total["offered"], total


def test_a_workload_gets_the_flags_of_all_its_models(server: Tessera, tmp_path: Path) -> None:
    workload = tmp_path / "two lines.toml"
    sections = "".join(
        f'[models.{name}]\nslo = "20s"\nrate = 10.0\nprofile = {{ alpha = "1ms", beta = "1ms", max_batch = 1 }}\n' for name in ("warmed", "identity")
    )
    workload.write_text(f'name = "two"\nduration = "300ms"\n{sections}')
    outcome = load(workload, "--url", server.base_url, "--json")
    assert outcome.code == FAILED, outcome
    command = printed(outcome.said)
    assert "--shape warmed/image=1x1x48x192" in command and "--shape identity/INPUT0=" in command, command
    done = copied(command, tmp_path)
    assert done.returncode in (RAN, LATE), done
    assert all(model["figures"]["answered"] > 0 for model in json.loads(done.stdout)["models"]), done.stdout


def test_a_model_that_no_guess_fits_is_told_once_and_not_as_a_warning(tmp_path: Path) -> None:
    models.place(tmp_path, "odd", recogniser(OPEN, height=7))
    with Tessera(tmp_path) as server:
        server.wait_ready()
        own = [event for event in server.logged("") if event.get("model") == "odd"]
        assert not [event for event in own if event["level"] in ("WARN", "ERROR")], own
        for message in ("not batched: whether a batch changes its answers is unknown", "no sample input runs"):
            told = [event for event in own if event["message"].startswith(message)]
            assert len(told) == 1 and told[0]["reason"], (message, own)
        outcome = load("--url", server.base_url, "--model", "odd", *SHORT)
        assert outcome.code == FAILED and "the server accepts none of those that were tried" in outcome.said, outcome
        known = load("--url", server.base_url, "--model", "odd", "--shape", "image=1x7x32", "--json", *SHORT)
        assert known.code in (RAN, LATE), known
