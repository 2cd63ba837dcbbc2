"""`[families.NAME]`: variants of a model, chosen for each request, on the live server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.grpc as grpcclient
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

CLASSES = 10
# One row in ten has a class that no model knows.
ROWS, UNKNOWN = 200, 20


def scores(known: int) -> onnx.ModelProto:
    """Gives the input back, but for the classes that it does not know."""
    mask = np.array([1.0 if place < known else 0.0 for place in range(CLASSES)], np.float32)
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", CLASSES])  # noqa: E731
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "mask"], ["y"])], "g", [info("x")], [info("y")], [numpy_helper.from_array(mask, "mask")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    return model


def place(repository: Path, name: str, model: onnx.ModelProto) -> None:
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(model, repository / name / "1" / "model.onnx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three models, rows with labels, and a configuration with a family."""
    repository = tmp_path / "models"
    for name, known in [("large", 10), ("medium", 8), ("small", 5)]:
        place(repository, name, scores(known))
    classes = np.arange(ROWS) % CLASSES
    x = np.eye(CLASSES, dtype=np.float32)[classes]
    labels = classes.copy()
    labels[:UNKNOWN] = CLASSES
    np.savez(tmp_path / "rows.npz", x=x, label=labels)
    np.savez(tmp_path / "plain.npz", x=x)
    (tmp_path / "tessera.toml").write_text(
        f"""
        [repository]
        path = "{repository}"
        engine = "ort"
        [families.classes]
        slo = "5s"
        variants = ["small", "medium", "large"]
        """
    )
    return tmp_path


def tessera(*options: object) -> subprocess.CompletedProcess[str]:
    command = [os.environ["TESSERA_BIN"], *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def measure(folder: Path, *options: object) -> list[dict]:
    done = tessera("variants", "measure", "classes", "--config", folder / "tessera.toml", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def serve(folder: Path, more: str = "") -> Tessera:
    return Tessera(folder / "models", (folder / "tessera.toml").read_text() + more)


def row(name: str = "x") -> dict:
    return {"name": name, "datatype": "FP32", "shape": [1, CLASSES], "data": [float(place == 7) for place in range(CLASSES)]}


def infer(client: Client, model: str = "classes", **parameters: object) -> tuple[int, dict]:
    status, answer, _ = client.post(f"/v2/models/{model}/infer", {"inputs": [row()], "parameters": parameters})
    return status, answer


def test_quality_is_measured_on_labels_and_stored(folder: Path) -> None:
    measured = {one["model"]: one for one in measure(folder, "--labelled", folder / "rows.npz")}
    # Of each class, 2 of 20 rows have the wrong label, and a row without scores has class 0.
    right = {known: sum(1 for at in range(UNKNOWN, ROWS) if at % CLASSES < known) / ROWS for known in (10, 8, 5)}
    assert {name: one["quality"] for name, one in measured.items()} == {"large": right[10], "medium": right[8], "small": right[5]}
    assert all(one["kind"] == "accuracy" and one["rows"] == ROWS for one in measured.values())
    stored = json.loads((folder / "models/small/quality.json").read_text())
    assert stored["digest"] == hashlib.sha256((folder / "models/small/1/model.onnx").read_bytes()).hexdigest()


def test_without_labels_it_is_agreement(folder: Path) -> None:
    measured = measure(folder, "--data", folder / "plain.npz", "--reference", "large")
    assert {one["model"]: (one["quality"], one["kind"]) for one in measured} == {
        "large": (1.0, "agreement"), "medium": (0.8, "agreement"), "small": (0.5, "agreement"),
    }
    told = tessera("variants", "measure", "small", "--config", folder / "tessera.toml", "--labelled", folder / "plain.npz")
    assert told.returncode == 1 and "the file has no `label`: expected one of x" in told.stderr, told.stderr


def test_a_family_answers_as_one_model_and_names_the_variant(folder: Path) -> None:
    measure(folder, "--labelled", folder / "rows.npz")
    with serve(folder) as server:
        client = Client(server)
        status, answer = infer(client)
        assert status == 200, answer
        assert answer["model_name"] == "classes"
        assert answer["parameters"] == {"variant": "large", "quality": 0.9}
        assert int(np.argmax(answer["outputs"][0]["data"])) == 7
        metadata = get(f"{server.base_url}/v2/models/classes")
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["x"]
        # A variant that is asked for, also over gRPC.
        assert infer(client, variant="small")[1]["parameters"]["variant"] == "small"
        tensor = grpcclient.InferInput("x", [1, CLASSES], "FP32")
        tensor.set_data_from_numpy(np.eye(CLASSES, dtype=np.float32)[[3]])
        triton = grpcclient.InferenceServerClient(server.grpc_address)
        result = triton.infer("classes", [tensor], parameters={"variant": "medium"})
        assert result.get_response().parameters["variant"].string_param == "medium"
        # What a request asks for is checked.
        for parameters, said in [
            ({"quality_min": 0.95}, "parameter `quality_min`: expected 0 to 0.9, the quality of the best variant of `classes`, got 0.95"),
            ({"quality_min": "much"}, "parameter `quality_min`: expected a number from 0 to 1"),
            ({"cost_max": -1}, "parameter `cost_max`: expected milliseconds of lane time above 0, got -1"),
            ({"variant": 3}, "parameter `variant`: expected the name of a variant"),
            ({"variant": "other"}, "parameter `variant`: expected a variant of `classes`: small, medium, large"),
        ]:
            status, answer = infer(client, **parameters)
            assert status == 400 and said in answer["error"], answer
        rows = np.zeros((100, CLASSES)).tolist()
        body = {"inputs": [{**row(), "shape": [100, CLASSES], "data": sum(rows, [])}]}
        status, answer, _ = client.post("/v2/models/classes/infer", body)
        assert status == 400 and "100 rows: expected at most 64" in answer["error"], answer
        # Explain has the variant.
        request = {"inputs": [row()], "parameters": {"quality_min": 0.7}}
        _, _, headers = client.post("/v2/models/classes/infer", request)
        explained = tessera("explain", headers["x-request-id"], "--server", server.http_address, "--json")
        assert explained.returncode == 0 and '"large"' in explained.stdout, explained.stdout + explained.stderr


def test_a_family_needs_qualities_of_its_files(folder: Path) -> None:
    refused = tessera("check", "--config", folder / "tessera.toml", "--load")
    measured = "the quality of `small` was not measured: measure it with `tessera variants measure`"
    with serve(folder, "\n[server]\n") as server:
        states = {model["name"]: model for model in server.announced["models"]}
        assert states["small"]["state"] == "READY" and measured in states["classes"]["reason"], (states, refused.stdout)
    measure(folder, "--labelled", folder / "rows.npz")
    place(folder / "models", "small", scores(6))
    with serve(folder) as server:
        states = {model["name"]: model for model in server.announced["models"]}
        assert "the quality of `small` was measured of other files" in states["classes"]["reason"], states


def test_a_variant_that_is_replaced_is_left_out_until_it_is_measured(folder: Path) -> None:
    measure(folder, "--labelled", folder / "rows.npz")
    with serve(folder) as server:
        client = Client(server)
        assert infer(client)[1]["parameters"]["variant"] == "large"
        place(folder / "models", "large", scores(9))
        assert client.post("/v2/repository/models/large/load", {})[0] == 200
        assert infer(client)[1]["parameters"]["variant"] == "medium"
        assert "a family goes without it" in server.log()
        assert client.post("/v2/repository/models/medium/unload", {})[0] == 200
        assert infer(client)[1]["parameters"]["variant"] == "small"


def test_an_8_bit_variant_is_made_and_measured(folder: Path) -> None:
    weights = np.random.default_rng(0).normal(0, 1, (CLASSES, CLASSES)).astype(np.float32)
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", CLASSES])  # noqa: E731
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x")], [info("y")], [numpy_helper.from_array(weights, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    place(folder / "models", "dense", model)
    make = ["variants", "make", "dense", "--config", folder / "tessera.toml", "--int8", "--python"]
    made = tessera(*make, sys.executable)
    assert made.returncode == 0 and "dense-int8: written to" in made.stdout, made.stderr
    again = tessera(*make, sys.executable)
    assert again.returncode == 1 and "exists already: expected --force" in again.stderr, again.stderr
    missing = tessera(*make, folder / "no-python", "--force")
    assert missing.returncode == 1 and "--python: cannot run" in missing.stderr, missing.stderr
    assert sorted(path.name for path in (folder / "models").glob("*dense*")) == ["dense", "dense-int8"], "the one before stays"
    measured = tessera(
        "variants", "measure", "dense-int8", "--config", folder / "tessera.toml", "--data", folder / "plain.npz", "--reference", "dense", "--json"
    )
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)[0]["quality"] > 0.8, measured.stdout


def test_pipelines_take_variants_instead_of_families(folder: Path) -> None:
    measure(folder, "--labelled", folder / "rows.npz")
    with serve(folder, '\n[pipelines.twice]\nstages = [{ model = "classes" }]\n') as server:
        states = {model["name"]: model for model in server.announced["models"]}
        assert "`classes` is a family: expected one of its variants" in states["twice"]["reason"], states


def test_wrong_families_are_named(folder: Path) -> None:
    for wrong, said in [
        ('variants = ["small", "small"]', "`small` is there twice"),
        ("variants = []", "expected 1 to 64 models, got 0"),
        ('variants = ["small"]\nquality_min = 2', "families.other.quality_min: expected 0 to 1, got 2"),
        ('variants = ["small"]\nquality = 1', "unknown key"),
        ('slo = "1s"', "variants: expected a list of models"),
    ]:
        config = folder / "wrong.toml"
        config.write_text((folder / "tessera.toml").read_text() + f"\n[families.other]\n{wrong}\n")
        told = tessera("check", "--config", config)
        assert told.returncode == 1 and said in told.stdout + told.stderr, (wrong, told.stdout, told.stderr)


def test_quality_falls_before_requests_are_refused_and_returns(tmp_path: Path) -> None:
    qualities = {"large": 0.99, "small": 0.9}
    # 50 and 500 rows a second on the one lane.
    for name, time_us in [("large", 20_000), ("small", 2_000)]:
        echo(time_us).place(tmp_path, name)
        description = (tmp_path / name / "1" / "model.toml").read_bytes()
        quality = {
            "quality": qualities[name], "kind": "accuracy", "rows": 100, "digest": hashlib.sha256(description).hexdigest(),
        }
        (tmp_path / name / "quality.json").write_text(json.dumps(quality))
    config = """
        [lanes]
        count = 1
        [families.echo]
        slo = "300ms"
        variants = ["large", "small"]
        """
    with Tessera(tmp_path, config) as server:
        client = Client(server)

        def one() -> str:
            status, answer, _ = client.infer("echo", [[1.0, 2.0, 3.0, 4.0]])
            assert status == 200, answer
            return answer["parameters"]["variant"]

        def answered() -> dict[str, int]:
            counts = {name: get(f"{server.base_url}/v2/models/{name}/stats") for name in qualities}
            return {name: one["model_stats"][0]["inference_stats"]["success"]["count"] for name, one in counts.items()}

        assert one() == "large"
        # Lane time counts: 20 and 2 ms.
        status, answer, _ = client.infer("echo", [[1.0, 2.0, 3.0, 4.0]], cost_max=10)
        assert (status, answer["parameters"]["variant"]) == (200, "small"), answer
        status, answer, _ = client.infer("echo", [[1.0, 2.0, 3.0, 4.0]], cost_max=1)
        assert status == 503 and "that takes at most 1 ms (cost_max) is being served" in answer["error"], answer
        before = answered()
        # Three times what the large one answers.
        sent = tessera(
            "load", "-m", "echo", "--rate", 150, "--slo", "300ms", "--duration", "8s", "--warmup", "1s", "--json", "--url", server.base_url
        )
        # 3: this machine sent some requests late. They count from when they were due, so the figures below are only worse for it.
        assert sent.returncode in (0, 3), sent.stderr
        figures = json.loads(sent.stdout)["models"][0]["figures"]
        during = {name: count - before[name] for name, count in answered().items()}
        assert figures["attainment"] > 0.97, (figures["attainment"], figures["refused"], during)
        # At 150 a second, the lane carries a share of 0.26 on the large one.
        share = during["large"] / sum(during.values())
        assert 0.15 < share < 0.35, during
        assert one() == "large"
        with urllib.request.urlopen(server.metrics_url, timeout=10) as page:
            metrics = page.read().decode()
        assert 'tessera_family_quality{model="echo"} 0.99' in metrics
        fell = [line for line in metrics.splitlines() if line.startswith("tessera_family_level_changes_total") and '"fall"' in line]
        assert int(fell[0].rsplit(" ", 1)[1]) > 0, fell
