"""The `tessera profile` command: measurement, interruption, resumption, mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from fixtures.wait import until

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "models" / "bundled" / "digits"
# Time limit of a command.
SECONDS = 120
SYNTHETIC = """
max_batch = 4
inputs = [{ name = "x", datatype = "FP32", dims = [-1, 4] }]
outputs = [{ name = "y", datatype = "FP32", dims = [-1, 4] }]

[time]
alpha_us = 2000
beta_us = 1000
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    shutil.copytree(DIGITS, repository / "digits")
    (repository / "steady" / "1").mkdir(parents=True)
    (repository / "steady" / "1" / "model.toml").write_text(SYNTHETIC)
    return repository


def command(repository: Path, *arguments: object) -> list[str]:
    out = () if "--out" in arguments else ("--out", repository.parent / "profile.jsonl")
    given = ("profile", "--repository", repository, *out, *arguments)
    return [os.environ["TESSERA_BIN"], *map(str, given)]


def profile(repository: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(repository, *arguments), capture_output=True, text=True, timeout=SECONDS)


def cells(repository: Path) -> dict[tuple[str, int, int], dict]:
    """Cells of the file by model, batch and cores. Every line must be complete."""
    found, model = {}, ""
    for line in (repository.parent / "profile.jsonl").read_text().splitlines():
        kind, fields = next(iter(json.loads(line).items()))
        if kind == "profile":
            model = fields["model"]
        elif kind == "cell":
            found[model, fields["batch"], fields["units"]] = fields
    return found


def test_all_models_are_measured_and_reported(repository: Path) -> None:
    page, plot = repository.parent / "page.html", repository.parent / "plot.svg"
    done = profile(repository, "--time", "20ms", "--cores", "1", "--json", "--report", page, "--svg", plot)
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    assert answer["device"] == "cpu" and not answer["interrupted"] and answer["failed"] == []
    by_name = {model["model"]: model for model in answer["models"]}
    assert set(by_name) == {"digits", "steady"} and len(by_name["digits"]["model_sha256"]) == 64
    assert by_name["digits"]["weights_bytes"] > 0, "loading a model makes the process grow"
    batches = [cell["batch"] for cell in by_name["steady"]["cells"]]
    assert batches == [1, 2, 4]
    for cell in by_name["steady"]["cells"]:
        least = 2000 + 1000 * cell["batch"]
        assert least <= cell["p50_us"] <= cell["p95_us"] <= cell["p99_us"] and cell["count"] >= 20, cell
    assert page.read_text().endswith("</html>\n") and plot.read_text().startswith("<svg")
    again = profile(repository, "--time", "20ms", "--cores", "1")
    assert again.returncode == 0 and "at best" in again.stdout, again
    models = json.loads(profile(repository, "--cores", "1", "--json").stdout)["models"]
    times = ("batch", "units", "p50_us", "p95_us", "p99_us", "count", "left_out")
    cells = {model["model"]: [[cell[key] for key in times] for cell in model["cells"]] for model in models}
    for model in answer["models"]:
        assert cells[model["model"]] == [[cell[key] for key in times] for cell in model["cells"]], "a complete cell was measured again"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_run_resumes(repository: Path, number: signal.Signals) -> None:
    arguments = ("--time", "200ms", "--cores", "1", "--model", "steady")
    process = subprocess.Popen(
        command(repository, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    file = repository.parent / "profile.jsonl"

    def has_a_cell() -> bool:
        assert process.poll() is None, process.communicate()
        return file.exists() and '"cell"' in file.read_text()

    until(has_a_cell, "the first cell", SECONDS)
    process.send_signal(number)
    out, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and "goes on from here" in out, (out, said)
    before = cells(repository)
    assert 1 <= len(before) < 3, before
    done = profile(repository, *arguments)
    after = cells(repository)
    assert done.returncode == 0 and set(after) == {("steady", batch, 1) for batch in (1, 2, 4)}, done
    assert all(after[key] == cell for key, cell in before.items())


MISTAKES = {
    "unknown_model": (("--model", "stedy"), 1, ("--model: `stedy`", "did you mean `steady`?")),
    "too_many_cores": (("--cores", "4096"), 1, ("--cores: 4096: expected 1 to",)),
    "no_core": (("--cores", "0"), 2, ("0 is not in 1..=4096",)),
    "too_large_a_batch": (("--model", "steady", "--batches", "1,8"), 1, ("--batches: 8", "at most 4 rows")),
    "no_time": (("--time", "0s"), 2, ("expected 1ms to 10m",)),
    "no_unit": (("--time", "2"), 2, ("expected a duration such as `50ms`",)),
    "a_folder": (("--out", "."), 1, ("--out: cannot write `.`",)),
    "no_such_folder": (("--out", "none/p.jsonl"), 1, ("--out: cannot write `none/p.jsonl`",)),
    "not_profiles": (("--out", "{readme}"), 1, ("expected a file of profiles: line 1",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(repository: Path, name: str) -> None:
    arguments, code, says = MISTAKES[name]
    readme = repository.parent / "README.md"
    readme.write_text("# Not profiles\n")
    done = profile(repository, *(argument.replace("{readme}", str(readme)) for argument in arguments))
    assert done.returncode == code and all(words in done.stderr for words in says), done
    assert readme.read_text() == "# Not profiles\n"
