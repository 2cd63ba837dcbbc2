"""`[pipelines.NAME]`: models that run as the stages of one, on the live server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import Synthetic  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
CONFIG = """
[repository]
engine = "ort"
[models.double]
max_batch = 4
[pipelines.positive]
slo = "5s"
stages = [
  { model = "pick", fan_out = 2.0 },
  { model = "double", from = "pick" },
]
[pipelines.cascade]
stages = [
  { name = "small", model = "sure", answer_if = "is_sure" },
  { name = "large", model = "double", inputs = { x = "x" } },
]
outputs = { y = ["large.y", "small.y"] }
"""


def graph(nodes: list, inputs: dict, outputs: dict, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    def info(tensors: dict) -> list:
        return [helper.make_tensor_value_info(name, element, shape) for name, (element, shape) in tensors.items()]

    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info(inputs), info(outputs), values), opset_imports=[helper.make_opsetid("", 16)]
    )
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


# The positive numbers of a list, a row each.
PICK = graph(
    [
        helper.make_node("Greater", ["x", "zero"], ["is_positive"]),
        helper.make_node("Compress", ["x", "is_positive"], ["positive"], axis=0),
        helper.make_node("Unsqueeze", ["positive", "axis"], ["rows"]),
    ],
    {"x": (FLOAT, ["M"])},
    {"rows": (FLOAT, ["K", 1])},
    {"zero": np.array(0.0, np.float32), "axis": np.array([1], np.int64)},
)
DOUBLE = graph(
    [helper.make_node("Mul", ["x", "two"], ["y"])],
    {"x": (FLOAT, ["N", 1])},
    {"y": (FLOAT, ["N", 1])},
    {"two": np.array(2.0, np.float32)},
)
# Sure of numbers above 10, of which it returns the negative.
SURE = graph(
    [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Greater", ["x", "ten"], ["is_sure"])],
    {"x": (FLOAT, ["N", 1])},
    {"y": (FLOAT, ["N", 1]), "is_sure": (BOOL, ["N", 1])},
    {"ten": np.array(10.0, np.float32)},
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    for name, model, batch in (("pick", PICK, 0), ("double", DOUBLE, 8), ("sure", SURE, 8)):
        models.place(folder, name, model)
        (folder / name / "config.pbtxt").write_text(f'backend: "onnxruntime"\nmax_batch_size: {batch}\n')
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Tessera]:
    with Tessera(repository, CONFIG) as server:
        server.wait_ready(60)
        yield server


def infer(server: Tessera, name: str, values: np.ndarray, **parameters: object) -> tuple[int, dict]:
    tensor = {"name": "x", "datatype": "FP32", "shape": list(values.shape), "data": values.ravel().tolist()}
    status, answer, _ = Client(server).post(f"/v2/models/{name}/infer", {"inputs": [tensor], "parameters": parameters})
    return status, answer


def outputs(answer: dict) -> dict[str, list]:
    return {output["name"]: (output["shape"], output["data"]) for output in answer["outputs"]}


@pytest.mark.parametrize("positive", [0, 1, 3, 4, 10, 23])
def test_a_stage_may_make_any_number_of_rows(server: Tessera, positive: int) -> None:
    values = np.concatenate([np.arange(1, positive + 1), -np.ones(5)]).astype(np.float32)
    status, answer = infer(server, "positive", np.random.default_rng(1).permutation(values))
    assert status == 200, answer
    shape, data = outputs(answer)["y"]
    assert shape == [positive, 1] and sorted(data) == [2.0 * number for number in range(1, positive + 1)]


def test_a_stage_may_answer_early(server: Tessera) -> None:
    def runs_of(model: str) -> int:
        return get(f"{server.base_url}/v2/models/{model}/stats")["model_stats"][0]["inference_count"]

    before = runs_of("double")
    status, answer = infer(server, "cascade", np.array([[11.0]], np.float32))
    assert (status, outputs(answer)) == (200, {"y": ([1, 1], [-11.0])}), answer
    assert runs_of("double") == before, "the other stage did not run"
    status, answer = infer(server, "cascade", np.array([[3.0]], np.float32))
    assert (status, outputs(answer)) == (200, {"y": ([1, 1], [6.0])}), answer


def test_a_pipeline_is_a_model(server: Tessera) -> None:
    metadata = get(f"{server.base_url}/v2/models/positive")
    assert metadata["platform"] == "ensemble" and metadata["versions"] == ["1"], metadata
    assert [(tensor["name"], tensor["shape"]) for tensor in metadata["inputs"]] == [("x", [-1])]
    assert [(tensor["name"], tensor["shape"]) for tensor in metadata["outputs"]] == [("y", [-1, 1])]
    steps = get(f"{server.base_url}/v2/models/positive/config")["ensemble_scheduling"]["step"]
    assert [step["model_name"] for step in steps] == ["pick", "double"]
    assert infer(server, "positive", np.ones((2, 2), np.float32))[0] == 400
    counted = server.metric("tessera_requests_total", model="positive")
    assert infer(server, "positive", np.ones(2, np.float32))[0] == 200
    assert server.metric("tessera_requests_total", model="positive") == counted + 1


def test_the_deadline_is_that_of_the_whole(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    for name in ("first", "second"):
        Synthetic(40_000, 0, 1, 4, 4, "x", "x").place(folder, name)
    config = """
[pipelines.both]
stages = [{ model = "first" }, { model = "second", from = "first" }]
"""
    with Tessera(folder, config) as server:
        server.wait_ready()
        row = np.ones((1, 4), np.float32)
        assert infer(server, "both", row)[0] == 200

        def count(model: str) -> int:
            return get(f"{server.base_url}/v2/models/{model}/stats")["model_stats"][0]["inference_count"]

        before = count("first")
        # Each stage alone would be in time. One in sixteen runs all the same, which checks the estimate.
        answers = [infer(server, "both", row, timeout=60_000) for _ in range(9)]
        refused = [answer["error"] for status, answer in answers if status == 503]
        assert len(refused) >= 7 and all("deadline" in error for error in refused), answers
        assert count("first") - before <= 2, "the first stage does not run in vain"
        assert infer(server, "both", row, timeout=2_000_000)[0] == 200


def test_requests_are_admitted_again_after_an_overload(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    for name in ("first", "second"):
        Synthetic(30_000, 0, 1, 4, 4, "x", "x").place(folder, name)
    # The share of the first stage is shorter than the stage, so it runs only if the second one has time enough.
    config = """
[pipelines.both]
stages = [{ model = "first" }, { model = "second", from = "first" }]
split = { first = 0.05, second = 0.95 }
"""
    with Tessera(folder, config) as server:
        server.wait_ready()
        row = np.ones((1, 4), np.float32)
        assert infer(server, "both", row, timeout=400_000)[0] == 200
        # They wait behind each other, up to two seconds in each stage.
        with ThreadPoolExecutor(40) as pool:
            burst = list(pool.map(lambda _: infer(server, "both", row, timeout=30_000_000)[0], range(40)))
        assert burst == [200] * 40
        answers = [infer(server, "both", row, timeout=400_000)[0] for _ in range(20)]
        assert answers == [200] * 20, "each of them alone takes 60 ms"


def test_shares_and_deadlines_of_stages_are_settings(repository: Path, tmp_path: Path) -> None:
    """With a deadline for each stage, the first stage is refused although the whole would be in time."""
    folder = tmp_path / "repository"
    for name in ("first", "second"):
        Synthetic(40_000, 0, 1, 4, 4, "x", "x").place(folder, name)
    stages = 'stages = [{ model = "first" }, { model = "second", from = "first" }]'
    config = f"""
[pipelines.whole]
slo = "2s"
{stages}
split = {{ first = 0.01, second = 0.99 }}
[pipelines.fixed]
slo = "2s"
{stages}
split = {{ first = 0.01, second = 0.99 }}
deadlines = "static"
"""
    with Tessera(folder, config) as server:
        server.wait_ready()
        row = np.ones((1, 4), np.float32)
        # The first request runs to learn how long the stages take.
        answers = {name: [infer(server, name, row)[0] for _ in range(9)] for name in ("whole", "fixed")}
        assert answers["whole"] == [200] * 9
        assert answers["fixed"].count(503) >= 7, answers


def test_a_request_is_explained_by_stage(server: Tessera) -> None:
    def ask(values: np.ndarray, name: str) -> dict:
        tensor = {"name": "x", "datatype": "FP32", "shape": list(values.shape), "data": values.ravel().tolist()}
        request = urllib.request.Request(
            f"{server.base_url}/v2/models/{name}/infer", json.dumps({"inputs": [tensor]}).encode(), {"x-request-id": f"explained-{name}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        return get(f"{server.base_url}/v2/explain/explained-{name}")

    told = ask(np.arange(1, 11, dtype=np.float32), "positive")
    stages = told["pipeline"]
    named = [(stage["stage"], stage["model"], stage["version"], stage["rows"], stage["parts"]) for stage in stages]
    assert named == [("pick", "pick", 1, 1, 1), ("double", "double", 1, 10, 3)]
    pick, double = stages
    assert 0 < pick["started_ms"] < pick["ended_ms"] <= double["started_ms"] < double["ended_ms"] <= told["total_ms"]
    assert double["compute_ms"] > 0 and double["batch_rows"] >= 2 and "reason" not in double
    told = ask(np.full((1, 1), 11, np.float32), "cascade")
    assert [stage["stage"] for stage in told["pipeline"]] == ["small"], "the other stage did not run"
    command = [os.environ["TESSERA_BIN"], "explain", "explained-positive", "--server", server.http_address]
    text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    assert "pick 1" in text and "double 1" in text and "compute ms" in text, text


def test_mistakes_are_named(repository: Path, tmp_path: Path) -> None:
    for text, expected in (
        ("[pipelines.p]\nstages = [{ model = 'dubble' }]\n", "model `dubble` is unknown"),
        ("[pipelines.double]\nstages = [{ model = 'double' }]\n", "pipelines.double: a model has this name"),
        ("[pipelines.p]\nstages = [{ model = 'double', from = 'x' }]\n", "from: `x`: expected the name of an earlier stage"),
        ("[pipelines.p]\nstage = []\n", "did you mean `stages`?"),
        ("[pipelines.p]\nstages = 3\n", "pipelines.p.stages"),
        ("[pipelines.p]\nslo = '1s'\n", "expected a list of stages"),
        ("[pipelines.p]\nstages = [{ model = 'double' }]\nsplit = { double = 2.0 }\n", "expected a share above 0 and at most 1, got 2"),
        ("[pipelines.p]\nstages = [{ model = 'double' }]\nsplit = { dubble = 0.5 }\n", "split: `dubble`: expected one of the stages: double"),
        ("[pipelines.p]\nslo = '1s'\nstages = [{ model = 'double' }]\n[models.p]\nslo = '2s'\n", "set together with models.p.slo"),
    ):
        file = tmp_path / "tessera.toml"
        file.write_text(f'[repository]\npath = "{repository}"\n{text}')
        checked = subprocess.run([os.environ["TESSERA_BIN"], "check", "--config", str(file)], capture_output=True, text=True, timeout=60)
        assert checked.returncode != 0 and expected in checked.stdout + checked.stderr, (text, checked)


def test_a_pipeline_serves_on_while_a_stage_is_reloaded(server: Tessera) -> None:
    client = Client(server)
    for number in range(5):
        status, answer, _ = client.post("/v2/repository/models/double/load", {})
        assert status == 200, answer
        status, answer = infer(server, "positive", np.array([number + 1.0], np.float32))
        assert (status, outputs(answer)["y"][1]) == (200, [2.0 * (number + 1)]), answer
    assert client.post("/v2/repository/models/double/unload", {})[0] == 200
    status, answer = infer(server, "positive", np.ones(1, np.float32))
    assert status in (404, 503) and "double" in answer["error"], (status, answer)
    assert client.post("/v2/repository/models/double/load", {})[0] == 200
    until(lambda: infer(server, "positive", np.ones(1, np.float32))[0] == 200, "the pipeline serves again", 30)


def test_an_ensemble_is_not_rolled_out(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    shutil.copytree(repository / "double", folder / "double")
    io = "".join(f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [1] }}\n' for kind, name in (("input", "a"), ("output", "b")))
    step = 'model_name: "double" model_version: -1 input_map { key: "x" value: "a" } output_map { key: "y" value: "b" }'
    text = f'platform: "ensemble"\nmax_batch_size: 8\n{io}ensemble_scheduling {{ step {{ {step} }} }}\n'
    (folder / "both" / "1").mkdir(parents=True)
    (folder / "both" / "config.pbtxt").write_text(text)
    with Tessera(folder, "[models.both.rollout]\ncanary = 0.2\n") as server:
        server.wait_ready(60)
        (folder / "both" / "2").mkdir()
        status, answer, _ = Client(server).post("/v2/repository/models/both/load", {})
        assert status >= 400 and "is not supported for ensembles" in answer["error"], answer
