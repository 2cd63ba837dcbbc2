"""`tessera split` on real models: the stages that it writes give what the whole model gives, run by onnxruntime itself.

The CNNs get seeded weights, because those of their files give the same answer to every image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from fixtures import models, seeded
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
import reference  # noqa: E402

ZOO = Path(os.environ.get("TESSERA_ZOO", "zoo"))
BINARY = os.environ.get("TESSERA_BIN", "target/release/tessera")

# Model, flags. The CNNs free their batch. Every layer of MiniLM reads the mask and the shape of an input.
MODELS = {
    "squeezenet": [],
    "resnet50": [],
    "densenet121": [],
    "inception_v1": [],
    "rapidocr_rec": ["--shape", "x=3x48x96"],
    "minilm_int8": ["--crossing", "3"],
}

# |difference| <= TOLERANCE * the largest value: the runtime fuses operators of one stage that are apart in two.
TOLERANCE = 1e-5

QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4


def place(repository: Path, name: str) -> None:
    """One model of the zoo as a repository of its own."""
    if name in seeded.CLASSIFIER:
        models.place(repository, name, seeded.read(ZOO, name))
        settings = "free_batch = true\nmax_batch = 4\n"
    else:
        shutil.copytree(ZOO / name, repository / name)
        settings = "max_batch = 4\n"
    (repository / "tessera.toml").write_text(f'[models.{name}]\nslo = "30s"\n{settings}')


def record(path: Path, cases: list[dict[str, np.ndarray]]) -> None:
    """Cases as the recorded requests that --data reads."""
    with path.open("w") as file:
        for case in cases:
            inputs = [
                {
                    "name": tensor,
                    "datatype": np_to_triton_dtype(array.dtype),
                    "shape": array.shape,
                    "data": array.ravel().tolist(),
                }
                for tensor, array in case.items()
            ]
            file.write(json.dumps({"inputs": inputs}) + "\n")


def split(repository: Path, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [BINARY, "split", name, "--repository", str(repository), "--engine", "ort", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def chain(out: Path, name: str, case: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the ensemble gives for a case, step by step as its configuration says."""
    config = text_format.Parse((out / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert config.platform == "ensemble" and (out / name / "1").is_dir()
    assert {tensor.name for tensor in config.input} == set(case)
    tensors = dict(case)
    for step in config.ensemble_scheduling.step:
        folder = out / step.model_name
        stage = text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
        assert stage.max_batch_size == config.max_batch_size
        assert {tensor.name for tensor in stage.input} == set(step.input_map)
        session = onnxruntime.InferenceSession(str(folder / "1" / "model.onnx"), QUIET)
        given = {own: tensors[tensor] for own, tensor in step.input_map.items()}
        answers = session.run(list(step.output_map), given)
        tensors |= dict(zip(step.output_map.values(), answers))
    return {tensor.name: tensors[tensor.name] for tensor in config.output}


@pytest.mark.parametrize("name", MODELS)
def test_stages_equal_the_whole(name: str, tmp_path: Path) -> None:
    repository, out, recorded = tmp_path / "whole", tmp_path / "stages", tmp_path / "cases.jsonl"
    repository.mkdir()
    place(repository, name)
    cases = [case for case in reference.cases(name) if len(next(iter(case.values()))) <= 4][:3]
    record(recorded, cases)
    flags = ["--out", str(out), "--json", "--seeds", "2", "--time", "50ms", "--data", str(recorded)]
    done = split(repository, name, *flags, *MODELS[name])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equality"]["recorded"] == len(cases)
    assert report["equality"]["largest"] <= TOLERANCE
    first, second = report["stages"]
    assert not first["crossing"] and second["crossing_bytes_per_row"] > 0
    assert report["slowest_share"] < 0.75, "one stage has most of the work"
    for stage in report["stages"]:
        onnx.checker.check_model(onnx.load(out / stage["name"] / "1" / "model.onnx"))
    model = onnx.load(repository / name / "1" / "model.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), QUIET)
    worst = 0.0
    for case in cases:
        wanted = dict(zip([output.name for output in session.get_outputs()], session.run(None, case)))
        found = chain(out, name, case)
        assert set(found) == set(wanted)
        for tensor, array in wanted.items():
            assert found[tensor].shape == array.shape and found[tensor].dtype == array.dtype
            worst = max(worst, float(np.abs(found[tensor] - array).max() / max(np.abs(array).max(), 1e-30)))
    assert worst <= TOLERANCE
    shares = [round(stage["share"], 3) for stage in report["stages"]]
    print(
        f"{name}: {second['crossing_bytes_per_row']} bytes a row cross ({', '.join(second['crossing'])}), shares {shares}, "
        f"largest difference {report['equality']['largest']:.1e}, by onnxruntime {worst:.1e}"
    )


def test_what_cannot_be_split_says_what_would_be_right(tmp_path: Path) -> None:
    place(tmp_path, "magika")
    out = tmp_path / "out"
    few = split(tmp_path, "magika", "--out", str(out))
    assert few.returncode == 1 and "expected --crossing 2" in few.stderr and not out.exists()
    unknown = split(tmp_path, "magica")
    assert unknown.returncode == 1 and "did you mean `magika`?" in unknown.stderr
    speeds = split(tmp_path, "magika", "--speeds", "1,2,3")
    assert speeds.returncode == 1 and "--speeds: expected a speed for each of 2 stages, got 3" in speeds.stderr
    same = split(tmp_path, "magika", "--crossing", "2", "--out", str(tmp_path))
    assert same.returncode == 1 and "is the repository of the model" in same.stderr
