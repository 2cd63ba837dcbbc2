"""`vote` of `[pipelines.NAME]`: models that classify the same rows, and the class that their weighted votes decide on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc as grpcclient
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench import votes  # noqa: E402
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import Synthetic  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

NAMES = ["digits-8", "digits-12", "digits-16"]
# One of them gives the class itself, and takes fewer rows than a request has.
CLASS = "digits-12"
TENSORS = {name: "label" if name == CLASS else "scores" for name in NAMES}
VOTE = "[" + ", ".join(f'"{name}.{tensor}"' for name, tensor in TENSORS.items()) + "]"
STAGES = "[" + ", ".join(f'{{ model = "{name}" }}' for name in NAMES) + "]"
CONFIG = f"""
[repository]
engine = "ort"
[models.{CLASS}]
max_batch = 32
[pipelines.digits]
slo = "5s"
stages = {STAGES}
vote = {VOTE}
"""


def measure(folder: Path) -> list[dict]:
    # The other models have one output.
    options = ["--repository", folder / "models", "--labelled", folder / "measure.npz", "--json"]
    return json.loads(votes.tessera("variants", "measure", *NAMES, *options))


def with_class(path: Path) -> None:
    """The class instead of the scores, as INT64 [N]."""
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]))
    onnx.save(model, path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("votes")
    votes.prepare(folder, [8, 12, 16])
    with_class(folder / "models" / CLASS / "1" / "model.onnx")
    measure(folder)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    subprocess.run(["cp", "-a", *trained.iterdir(), tmp_path], check=True)
    return tmp_path


def serve(folder: Path, more: str = "") -> Tessera:
    return Tessera(folder / "models", CONFIG + more)


def reason(folder: Path, name: str = "digits", more: str = "") -> str:
    with serve(folder, more) as server:
        states = {model["name"]: model for model in server.announced["models"]}
        return states[name]["reason"]


def infer(server: Tessera, pixels: np.ndarray, model: str = "digits", **parameters: object) -> tuple[int, dict, dict]:
    tensor = {"name": "pixels", "datatype": "FP32", "shape": list(pixels.shape), "data": pixels.ravel().tolist()}
    return Client(server).post(f"/v2/models/{model}/infer", {"inputs": [tensor], "parameters": parameters})


def answers(folder: Path, pixels: np.ndarray) -> dict[str, np.ndarray]:
    """The class that each model gives to each row."""
    found = {}
    for name, tensor in TENSORS.items():
        session = onnxruntime.InferenceSession(folder / "models" / name / "1" / "model.onnx")
        (output,) = session.run([tensor], {"pixels": pixels})
        found[name] = output if output.ndim == 1 else output.argmax(1)
    return found


def recomputed(folder: Path, classes: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The class with the largest sum of weights in each row, and its share of the weight."""
    measured = {name: json.loads((folder / "models" / name / "quality.json").read_text()) for name in NAMES}
    rows = len(classes[NAMES[0]])
    sums, best = np.zeros((rows, 10)), np.zeros((rows, 10))
    for name, quality in measured.items():
        weights = np.array([quality["classes"][str(label)] for label in range(10)])
        weights = np.array([round(1e6 * one["right"] / one["rows"]) for one in weights])
        at = np.arange(rows), classes[name]
        sums[at] += weights[classes[name]]
        best[at] = np.maximum(best[at], quality["quality"])
    ranked = np.lexsort((-np.arange(10)[None, :].repeat(rows, 0), best, sums), axis=1)[:, -1]
    return ranked, sums.max(1) / sums.sum(1)


def test_accuracy_is_stored_by_class(trained: Path) -> None:
    labels = np.load(trained / "measure.npz")["label"]
    given = answers(trained, np.load(trained / "measure.npz")["pixels"])
    for name in NAMES:
        stored = json.loads((trained / "models" / name / "quality.json").read_text())
        right = {str(label): int((given[name][labels == label] == label).sum()) for label in range(10)}
        rows = {str(label): int((labels == label).sum()) for label in range(10)}
        assert {label: one["right"] for label, one in stored["classes"].items()} == right
        assert {label: one["rows"] for label, one in stored["classes"].items()} == rows
        assert stored["quality"] == sum(right.values()) / len(labels)


def test_votes_are_weighted_by_class_and_explained(trained: Path) -> None:
    test = np.load(trained / "test.npz")
    pixels, labels = test["pixels"], test["label"]
    given = answers(trained, pixels)
    classes, shares = recomputed(trained, given)
    with serve(trained) as server:
        server.wait_ready()
        # All rows in one request: more than the largest batch of a model, so stages are divided.
        status, answer, headers = infer(server, pixels)
        assert status == 200, answer
        outputs = {output["name"]: output for output in answer["outputs"]}
        assert [(name, one["datatype"], one["shape"]) for name, one in outputs.items()] == [
            ("class", "INT64", [len(pixels)]), ("share", "FP32", [len(pixels)]),
        ]
        np.testing.assert_array_equal(outputs["class"]["data"], classes)
        np.testing.assert_allclose(outputs["share"]["data"], shares, rtol=1e-6)
        assert (shares < 1).any(), "the models differ on some rows"
        # A row alone gets the same answer, also over gRPC.
        client = grpcclient.InferenceServerClient(server.grpc_address)
        for row in np.flatnonzero(shares < 1)[:20]:
            tensor = grpcclient.InferInput("pixels", [1, 64], "FP32")
            tensor.set_data_from_numpy(pixels[row : row + 1])
            result = client.infer("digits", [tensor])
            assert result.as_numpy("class").tolist() == [classes[row]]
            assert result.as_numpy("share").tolist() == [pytest.approx(shares[row], rel=1e-6)]
        status, answer, _ = infer(server, np.zeros((0, 64), np.float32))
        assert (status, [output["shape"] for output in answer["outputs"]]) == (200, [[0], [0]]), answer
        # The members are stages of the pipeline.
        explained = get(f"{server.base_url}/v2/explain/{headers['x-request-id']}")
        stages = {stage["stage"]: (stage["rows"], stage["parts"]) for stage in explained["pipeline"]}
        assert set(stages) == set(NAMES) and stages[CLASS] == (360, 12), stages
        told = subprocess.run(
            [os.environ["TESSERA_BIN"], "explain", headers["x-request-id"], "--server", server.http_address],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout
        assert all(f"{name} 1" in told for name in NAMES), told
        assert server.metric("tessera_requests_total", model="digits") == 22
        stats = {name: get(f"{server.base_url}/v2/models/{name}/stats")["model_stats"][0] for name in NAMES}
        assert {one["inference_count"] for one in stats.values()} == {380}, stats
        metadata = get(f"{server.base_url}/v2/models/digits")
        assert [(one["name"], one["datatype"], one["shape"]) for one in metadata["outputs"]] == [
            ("class", "INT64", [-1]), ("share", "FP32", [-1]),
        ]
    alone = {name: float((one == labels).mean()) for name, one in given.items()}
    voted = float((classes == labels).mean())
    print(f"\naccuracy of each model {alone}, of the vote {voted:.4f}, best model {max(alone.values()):.4f}")
    assert voted >= min(alone.values())


def test_the_command_votes_as_the_server_does(trained: Path) -> None:
    test = np.load(trained / "test.npz")
    classes, _ = recomputed(trained, answers(trained, test["pixels"]))
    options = ["--repository", trained / "models", "--labelled", trained / "test.npz", "--json"]
    report = json.loads(votes.tessera("variants", "vote", *NAMES, *options))
    assert report["accuracy"] == (classes == test["label"]).mean() and report["intervals"] == []
    report = json.loads(votes.tessera("variants", "vote", *NAMES, *options, "--target", "0.5", "--interval", "90"))
    # Far above the target: a model leaves as soon as more than two of three votes agree, and two stay.
    assert [len(one["models"]) for one in report["intervals"]] == [3, 2, 2, 2], report["intervals"]
    assert [one["left"] is not None for one in report["intervals"]] == [True, False, False, False]
    report = json.loads(votes.tessera("variants", "vote", *NAMES, *options, "--target", "1", "--objective", "1ns"))
    assert all(one["models"] == [] for one in report["intervals"]), "all are slower"
    told = votes.tessera("variants", "vote", *NAMES, *options[:-1], "--target", "0.5")
    assert "vote of all" in told and "leaves" in told and "accurate in the mean" in told, told


def test_models_without_measured_weights_are_named(folder: Path) -> None:
    file = folder / "models" / "digits-16" / "quality.json"
    stored = json.loads(file.read_text())
    # A file of an earlier release.
    file.write_text(json.dumps({key: value for key, value in stored.items() if key != "classes"}))
    said = "pipelines.digits.vote: the quality of `digits-16` was measured without classes: measure it with `tessera variants measure --labelled`"
    assert said in reason(folder)
    file.unlink()
    said = "pipelines.digits.vote: the quality of `digits-16` was not measured: measure it with `tessera variants measure`"
    assert said in reason(folder)
    options = ["variants", "vote", *NAMES, "--repository", folder / "models", "--labelled", folder / "test.npz"]
    with pytest.raises(RuntimeError, match="the quality of `digits-16` was not measured"):
        votes.tessera(*options)
    measure(folder)
    model = folder / "models" / "digits-16" / "1" / "model.onnx"
    changed = onnx.load(model)
    changed.doc_string = "changed"
    onnx.save(changed, model)
    said = "pipelines.digits.vote: the quality of `digits-16` was measured of other files than those that are served"
    assert said in reason(folder)
    measure(folder)
    # A model without batches gives no answer for each row.
    more = "\n[models.digits-16]\nmax_batch = 0\n"
    assert "pipelines.digits.vote: `digits-16` takes no batches" in reason(folder, more=more)


def test_a_model_that_is_replaced_is_named_until_it_is_measured(folder: Path) -> None:
    pixels = np.load(folder / "test.npz")["pixels"][:3]
    with serve(folder) as server:
        server.wait_ready()
        client = Client(server)
        assert infer(server, pixels)[0] == 200
        model = folder / "models" / "digits-16" / "1" / "model.onnx"
        changed = onnx.load(model)
        changed.doc_string = "changed"
        onnx.save(changed, model)
        assert client.post("/v2/repository/models/digits-16/load", {})[0] == 200
        status, answer, _ = infer(server, pixels)
        assert status == 503 and "the quality of `digits-16` was measured of other files" in answer["error"], answer
        measure(folder)
        for action in ("unload", "load"):
            status, answer, _ = client.post(f"/v2/repository/models/digits/{action}", {})
            assert status == 200, answer
        assert infer(server, pixels)[0] == 200


def test_wrong_votes_are_named(folder: Path) -> None:
    stages = f"stages = {STAGES}"
    for wrong, said in [
        (f'{stages}\nvote = ["digits-8.scores"]', "pipelines.other.vote: expected 2 or more"),
        (f'{stages}\nvote = ["digits-8", "digits-16"]', 'vote: `digits-8`: expected "STAGE.TENSOR"'),
        (f'{stages}\nvote = ["digits-8.score", "digits-16.scores"]', "vote: `digits-8.score`: expected one of its outputs: scores"),
        (f'{stages}\nvote = ["digits-8.scores", "digits-8.scores"]', "vote: `digits-8` is there twice"),
        (f"{stages}\nvotes = {VOTE}", "did you mean `vote`?"),
    ]:
        config = folder / "wrong.toml"
        config.write_text(f'[repository]\npath = "{folder / "models"}"\n[pipelines.other]\n{wrong}\n')
        told = subprocess.run([os.environ["TESSERA_BIN"], "check", "--config", config], capture_output=True, text=True, timeout=60)
        assert told.returncode == 1 and said in told.stdout + told.stderr, (wrong, told.stdout, told.stderr)


def test_the_deadline_is_that_of_the_whole_vote(tmp_path: Path) -> None:
    for name, time_us in (("fast", 1_000), ("slow", 150_000)):
        Synthetic(time_us, 0, 4, 4, 4, "x", "x").place(tmp_path, name)
        digest = hashlib.sha256((tmp_path / name / "1" / "model.toml").read_bytes()).hexdigest()
        quality = {"quality": 0.9, "kind": "accuracy", "rows": 10, "digest": digest, "classes": {"2": {"right": 9, "rows": 10}}}
        (tmp_path / name / "quality.json").write_text(json.dumps(quality))
    config = """
[lanes]
count = 2
[pipelines.both]
stages = [{ model = "fast" }, { model = "slow" }]
vote = ["fast.x", "slow.x"]
outputs = { label = "vote.class" }
"""
    with Tessera(tmp_path, config) as server:
        server.wait_ready()

        def ask(**parameters: object) -> tuple[int, dict]:
            tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 3.0, 2.0]}
            status, answer, _ = Client(server).post("/v2/models/both/infer", {"inputs": [tensor], "parameters": parameters})
            return status, answer

        status, answer = ask(timeout=5_000_000)
        assert status == 200 and [(one["name"], one["data"]) for one in answer["outputs"]] == [("label", [2])], answer
        # The fast model would be in time, and the whole request is refused: there are no votes without a member. One in sixteen runs all
        # the same, which checks the estimate; it is late and complete.
        answers = [ask(timeout=40_000) for _ in range(9)]
        refused = [answer["error"] for status, answer in answers if status in (503, 504)]
        assert len(refused) >= 7 and all("deadline" in error for error in refused), answers
        assert all(answer["outputs"][0]["data"] == [2] for status, answer in answers if status == 200), answers
        assert ask(timeout=5_000_000)[0] == 200
