"""The `tessera profile` command: measurement, interruption, resumption, mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import onnx
import pytest
from fixtures import models
from fixtures.client import Client, get
from fixtures.graphs import FLOAT, Graph, recogniser
from fixtures.partition import until_view
from fixtures.tessera import Tessera
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


def filters() -> onnx.ModelProto:
    """Three convolutions with activations of megabytes, next to which memory of the engine itself is small."""
    graph = Graph()
    x = graph.input("image", FLOAT, ["batch", 3, 96, 96])
    for before, after in ((3, 32), (32, 32), (32, 16)):
        x = graph.convolution(x, before, after, (3, 3))
    return graph.output(x, "found", FLOAT, ["batch", 16, 96, 96]).model()


def test_predicted_memory_is_at_least_what_the_model_takes(repository: Path) -> None:
    folder, known = repository.parent, []
    models.place(repository, "filters", filters())
    run = ("--model", "filters", "--cores", "1", "--batches", "1,4", "--time", "20ms")
    measured = profile(repository, *run)
    assert measured.returncode == 0, measured
    for name, factor in (("a", 0.98), ("b", 1.0), ("c", 1.02)):
        for line in (folder / "profile.jsonl").read_text().splitlines():
            kind, fields = next(iter(json.loads(line).items()))
            if kind == "profile":
                fields["model"] = name
            elif kind == "cell":
                fields |= {key: factor * value for key, value in fields.items() if key.endswith("_us")}
            known.append(json.dumps({kind: fields}) + "\n")
    (folder / "known.jsonl").write_text("".join(known))
    predicted = profile(repository, *run, "--predict", "--from", folder / "known.jsonl", "--out", folder / "predicted.jsonl")
    assert predicted.returncode == 0 and "predicted from 3 measured models" in predicted.stdout, predicted
    taken, expected = (memory(folder / file) for file in ("profile.jsonl", "predicted.jsonl"))
    print(f"working memory by batch: predicted {expected}, measured {taken}")
    assert expected.keys() == {1, 4}
    shortfall = {batch: taken[batch] - bytes for batch, bytes in expected.items() if taken.get(batch, 0) > bytes}
    assert not shortfall, shortfall


def memory(file: Path) -> dict[int, int]:
    """Working memory of the file's only model in bytes, by batch."""
    arenas = [line["arena"] for line in map(json.loads, file.read_text().splitlines()) if "arena" in line]
    return {arena["batch"]: arena["bytes"] for arena in arenas}


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


def ask(client: Client, width: int, times: int) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 48, width], "data": [0.5] * (48 * width)}
    for _ in range(times):
        status, answer, _ = client.post("/v2/models/lines/infer", {"inputs": [tensor]})
        assert status == 200, answer


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A repository with a recogniser of lines of any width."""
    repository = tmp_path / "models"
    models.place(repository, "lines", recogniser())
    return repository


def headers(repository: Path) -> list[dict]:
    lines = (repository.parent / "profile.jsonl").read_text().splitlines()
    return [json.loads(line)["profile"] for line in lines if '"profile"' in line]


QUICK = ("--time", "20ms", "--cores", "1", "--batches", "1,2")


def test_the_shapes_of_the_traffic_are_measured_and_recorded(lines: Path) -> None:
    shutil.copytree(DIGITS, lines / "digits")
    with Tessera(lines) as server:
        server.wait_ready()
        url = server.base_url
        early = profile(lines, "--from-traffic", url, "--model", "lines", *QUICK)
        assert early.returncode == 1 and "has seen no request for version 1" in early.stderr, early
        client = Client(server)
        for width, times in ((192, 30), (64, 9), (320, 1)):
            ask(client, width, times)
        seen = get(f"{url}/v2/models/lines/shapes")
        assert [(shape["inputs"]["image"], shape["requests"]) for shape in seen["shapes"]] == [
            ([1, 48, 192], 30), ([1, 48, 64], 9), ([1, 48, 320], 1)
        ], seen
        assert (seen["requests"], seen["other"], seen["distinct"], seen["fixed"]) == (40, 0, 3, False)
        assert get(f"{url}/v2/models/digits/shapes")["fixed"]
        done = profile(lines, "--from-traffic", url, *QUICK)
        assert done.returncode == 0 and "image=1x48x192 (75 % of the requests)" in done.stdout, done
        by_name = {header["model"]: header for header in headers(lines)}
        assert "shapes" not in by_name["digits"]
        assert by_name["lines"]["shapes"] == [
            {"inputs": {"image": [1, 48, width]}, "share": share} for width, share in ((192, 0.75), (64, 0.225), (320, 0.025))
        ]
        # The shares move on; the profile goes on with the shapes that it has.
        ask(client, 64, 3)
        again = profile(lines, "--from-traffic", url, "--model", "lines", "--batches", "4", *QUICK[:4])
        assert again.returncode == 0 and cells(lines)["lines", 4, 1], again
        ask(client, 100, 40)
        other = profile(lines, "--from-traffic", url, "--model", "lines", *QUICK)
        assert other.returncode == 1 and "image=1x48x100" in other.stderr and "--fresh" in other.stderr, other
    unreachable = profile(lines, "--from-traffic", url, "--model", "lines", *QUICK)
    assert unreachable.returncode == 1 and "--from-traffic: cannot connect" in unreachable.stderr, unreachable


def test_a_plan_names_shapes_that_its_profiles_do_not_have(lines: Path) -> None:
    tool = os.environ["TESSERA_BIN"]

    def plan(shape: str) -> str:
        problem = lines.parent / "problem.toml"
        problem.write_text(
            'profiles = "profile.jsonl"\n[devices.cpu]\nmemory = "1GiB"\n'
            f'[workloads.lines]\nslo = "20s"\nrate = 1.0\n{shape}'
        )
        done = subprocess.run([tool, "plan", problem], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done
        return done.stdout

    assumed = profile(lines, *QUICK)
    assert assumed.returncode == 0 and "image=1x48x32 (assumed)" in assumed.stdout, assumed
    assert "warning: the profile of lines on cpu was measured at image=1x48x32 (assumed)" in plan("")
    said = plan("shape = { image = [1, 48, 192] }\n")
    command = "tessera profile --model lines --shape image=1x48x192 --fresh"
    assert f"image=1x48x192, but the profile of lines on cpu was measured at image=1x48x32 (assumed): run `{command}`" in said, said
    measured = profile(lines, *command.split()[2:], *QUICK)
    assert measured.returncode == 0, measured
    assert "warning" not in plan("shape = { image = [1, 48, 192] }\n")
    assert "warning" not in plan("")


def test_the_live_planner_names_shapes_that_its_profiles_do_not_have(lines: Path) -> None:
    config = '[lanes]\ncores = [[0]]\n[partition]\nlive = true\nperiod = "200ms"\nbake_time = "300ms"\n'
    with Tessera(lines, config=config) as server:
        server.wait_ready()
        ask(Client(server), 192, 120)
        told = until_view(server, lambda view: view["models"][0].get("profile_warning"), "a warning")
        warning = told["models"][0]["profile_warning"]
        assert "was measured at image=1x48x32 (assumed)" in warning, warning
        assert "the commonest image=1x48x192 (100 % of the requests)" in warning, warning
        assert "run `tessera profile --model lines --shape image=1x48x192 --fresh`" in warning, warning
        # The count of requests goes on between the line in the log and the view.
        start = warning[: warning.index("most of its ")]
        until(lambda: server.logged(start), "the warning in the log", SECONDS)
        logged = [line for line in server.logged(start) if line["level"] == "WARN"]
        assert len(logged) == 1 and logged[0]["model"] == "lines", logged
