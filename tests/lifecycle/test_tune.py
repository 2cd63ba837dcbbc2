"""The `tessera tune` command: a search, what it writes, its file of trials, interruption, mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from fixtures import models
from fixtures.client import Client
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "models" / "bundled" / "digits"
# Time limit of a command.
SECONDS = 120
QUICK = ("--time", "2ms", "--slo", "200ms", "--batches", "1,2,4,8")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    shutil.copytree(DIGITS, repository / "digits")
    echo(2_000, 1_000, max_batch=4).place(repository, "steady")
    return repository


def command(repository: Path, *arguments: object) -> list[str]:
    return [os.environ["TESSERA_BIN"], *map(str, ("tune", "--repository", repository, *arguments))]


def tune(repository: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(repository, *arguments), capture_output=True, text=True, timeout=SECONDS)


def trials(file: Path) -> list[dict]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert "conditions" in lines[0], lines[0]
    return [line["cell"] for line in lines[1:]]


def test_what_it_writes_is_served(repository: Path, tmp_path: Path) -> None:
    out, svg, page = tmp_path / "tuned.toml", tmp_path / "path.svg", tmp_path / "page.html"
    (repository / "tessera.toml").write_text("[models.digits]\nqueue_limit = 77\n")
    written = ("--out", out, "--svg", svg, "--report", page, "--json")
    done = tune(repository, "digits", *QUICK, "--budget", 6, *written)
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    best = answer["best"]
    assert 1 <= answer["trials"] <= 6 and answer["stopped"] in ("budget", "no_gain"), answer
    assert 2 * best["p99_us"] <= 200_000 and best["rows_per_s"] > 0, answer
    assert answer["settings"] == out.read_text() and answer["default"]["lanes"] == answer["default"]["threads"] * len(
        os.sched_getaffinity(0)
    )
    assert svg.read_text().startswith("<svg") and page.read_text().endswith("</html>\n")
    settings = out.read_text()
    assert "queue_limit = 77" in settings and 'slo = "200ms"' in settings, settings
    with Tessera(repository, settings) as server:
        row = [0.0] * 64
        tensor = {"name": "image", "datatype": "FP32", "shape": [1, 64], "data": row}
        meta = Client(server)
        status, answer, _ = meta.post("/v2/models/digits/infer", {"inputs": [tensor]})
        assert status == 200, answer


def test_measured_cells_are_not_measured_again(repository: Path, tmp_path: Path) -> None:
    grid = tmp_path / "digits.jsonl"
    arguments = ("digits", *QUICK, "--search", "random", "--grid", grid)
    first = tune(repository, *arguments, "--budget", 4)
    assert first.returncode == 0, first
    before = trials(grid)
    second = tune(repository, *arguments, "--budget", 3, "--json")
    answer = json.loads(second.stdout)
    after = trials(grid)
    assert second.returncode == 0 and answer["known"] == len(before) and answer["trials"] == 3, answer
    assert after[: len(before)] == before
    keys = ("engine", "lanes", "threads", "level", "spinning", "batch")
    seen = [tuple(cell[key] for key in keys) for cell in after]
    assert len(seen) == len(set(seen)), seen
    other = tune(repository, "digits", "--time", "3ms", *QUICK[2:], "--grid", grid)
    assert other.returncode == 1 and "--time is `2 ms`, now it is `3 ms`" in other.stderr, other


def test_an_interrupted_run_resumes(repository: Path, tmp_path: Path) -> None:
    grid = tmp_path / "digits.jsonl"
    arguments = ("digits", "--time", "100ms", "--slo", "200ms", "--search", "grid", "--budget", 500, "--grid", grid)
    process = subprocess.Popen(
        command(repository, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def has_a_cell() -> bool:
        assert process.poll() is None, process.communicate()
        return grid.exists() and '"cell"' in grid.read_text()

    until(has_a_cell, "the first trial", SECONDS)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and "interrupted" in out, (out, said)
    before = trials(grid)
    done = tune(repository, *(*arguments[:7], "--budget", 2, "--grid", grid, "--json"))
    assert done.returncode == 0 and json.loads(done.stdout)["known"] == len(before), done


MISTAKES = {
    "unknown_model": (("digit", *QUICK), 1, ("MODEL: `digit`", "did you mean `digits`?")),
    "no_model": (QUICK, 2, ("MODEL",)),
    "no_objective": (("digits",), 1, ("--slo: expected an objective such as `50ms`", "`models.digits.slo`")),
    "unknown_search": (("digits", *QUICK, "--search", "boo"), 2, ("expected one of `tessera`", "did you mean `bo`?")),
    "no_others": (("digits", *QUICK, "--search", "morphling"), 1, ("--search: `morphling` learns from other models",)),
    "not_onnx": (("steady", *QUICK), 1, ("is a synthetic model: expected an ONNX model",)),
    "too_large_a_batch": (("digits", "--slo", "1s", "--batches", "65"), 1, ("--batches: 65", "takes at most 64 rows")),
    "not_trials": (("digits", *QUICK, "--grid", "{readme}"), 1, ("line 1: expected a file of trials",)),
    "no_such_file": (("digits", *QUICK, "--from", "none.jsonl"), 1, ("none.jsonl",)),
    "no_shape": (("digits", *QUICK, "--shape", "picture=3"), 1, ("--shape: no input `picture`",)),
    "no_time": (("digits", "--slo", "0s"), 2, ("expected 1ms to 10m",)),
    "no_trials": (("digits", *QUICK, "--budget", "0"), 2, ("0 is not in 1..",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(repository: Path, name: str) -> None:
    arguments, code, says = MISTAKES[name]
    readme = repository.parent / "README.md"
    readme.write_text("# Not trials\n")
    done = tune(repository, *(argument.replace("{readme}", str(readme)) for argument in arguments))
    assert done.returncode == code and all(words in done.stderr for words in says), done
    assert readme.read_text() == "# Not trials\n"


def test_an_objective_that_nothing_meets_is_told(repository: Path) -> None:
    """64 rows are half a billion multiplications, so two batches take more than a millisecond on any of these machines."""
    models.place(repository, "slow", models.matmul_chain(1024, 8))
    done = tune(repository, "slow", "--time", "2ms", "--slo", "1ms", "--batches", "64", "--budget", 2)
    assert done.returncode == 1 and "no configuration that was tried meets 1ms" in done.stderr, done


TABLES = {
    "unknown_key": ("ort = { thread = 1 }", "models.digits.ort.thread"),
    "unknown_level": ('ort.graph_level = "none"', "expected `disable`, `basic`, `extended` or `all`"),
    "of_tract": ('engine = "tract"\nort.spinning = true', "exists only on ONNX Runtime: expected engine `ort`"),
}


@pytest.mark.parametrize("name", TABLES)
def test_mistakes_of_the_table_are_named(repository: Path, name: str) -> None:
    text, says = TABLES[name]
    config = repository.parent / "tessera.toml"
    config.write_text(f"[models.digits]\n{text}\n")
    arguments = [os.environ["TESSERA_BIN"], "check", "--repository", str(repository), "--config", str(config)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1 and says in done.stdout + done.stderr, done
