"""Ensembles in Tessera and in a real Triton with the same repository: the same answers, metadata, configuration and errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.grpc as tgrpc
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from fixtures import models
from fixtures.tessera import Tessera
from fixtures.wait import until
from oracle.triton import CannotRun, Triton
from triton.conftest import Pair
from triton.test_config import differences
from triton.test_repositories import on_both

# Where configurations differ: path -> reason.
DIFFERENCES = {
    "parameters.tessera.engine": "says that it is an ensemble",
    "parameters.tessera.policy": "says how batches are formed",
    "ensemble_scheduling.max_inflight_requests: 0 instead of 'absent'": "a field of a later Triton than this one",
}
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WIDTH = 4


def graph(nodes: list, inputs: dict, outputs: dict, constants: dict | None = None) -> onnx.ModelProto:
    def info(tensors: dict) -> list:
        return [helper.make_tensor_value_info(name, element, shape) for name, (element, shape) in tensors.items()]

    values = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (constants or {}).items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info(inputs), info(outputs), values), opset_imports=[helper.make_opsetid("", 16)]
    )
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


ROW = (FLOAT, ["N", WIDTH])
DOUBLE = graph([helper.make_node("Mul", ["x", "two"], ["y"])], {"x": ROW}, {"y": ROW}, {"two": 2.0})
PLUS = graph([helper.make_node("Add", ["x", "one"], ["y"])], {"x": ROW}, {"y": ROW}, {"one": 1.0})
ADD = graph([helper.make_node("Add", ["a", "b"], ["sum"])], {"a": ROW, "b": ROW}, {"sum": ROW})
BOTH = graph(
    [helper.make_node("Neg", ["x"], ["negative"]), helper.make_node("Abs", ["x"], ["absolute"])],
    {"x": ROW},
    {"negative": ROW, "absolute": ROW},
)
LARGEST = graph(
    [helper.make_node("ArgMax", ["x"], ["index"], axis=1, keepdims=1)], {"x": ROW}, {"index": (INT64, ["N", 1])}
)
FREE = graph([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, ["N", "M"])}, {"y": (FLOAT, ["N", "M"])})
LOOSE = graph([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, ["M"])}, {"y": (FLOAT, ["M"])})
MEMBERS = {
    "double": (DOUBLE, 8),
    "plus": (PLUS, 8),
    "add": (ADD, 8),
    "both": (BOTH, 8),
    "largest": (LARGEST, 8),
    "free": (FREE, 8),
    "loose": (LOOSE, 0),
    "words": (models.identity("BYTES", ["N", "M"]), 8),
    "narrow": (PLUS, 2),
}


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1) -> str:
    maps = "".join(
        f'{field} {{ key: "{own}" value: "{tensor}" }} '
        for field, pairs in (("input_map", inputs), ("output_map", outputs))
        for own, tensor in pairs.items()
    )
    return f'step {{ model_name: "{model}" model_version: {version} {maps}}}'


def tensor(kind: str, name: str, datatype: str = "TYPE_FP32", dims: tuple[int, ...] = (WIDTH,)) -> str:
    return f'{kind} {{ name: "{name}" data_type: {datatype} dims: {list(dims)} }}\n'


def ensemble(*steps: str, io: str = tensor("input", "in") + tensor("output", "out"), batch: int = 8, more: str = "") -> str:
    scheduling = " ".join(steps)
    return f'platform: "ensemble"\nmax_batch_size: {batch}\n{io}{more}ensemble_scheduling {{ {scheduling} }}\n'


TWICE, ONCE = step("double", {"x": "in"}, {"y": "t"}), step("plus", {"x": "t"}, {"y": "out"})
CHAIN = ensemble(TWICE, ONCE)
WORKING = {
    "chain": CHAIN,
    "one_step": ensemble(step("double", {"x": "in"}, {"y": "out"})),
    "reversed_order": ensemble(ONCE, TWICE),
    "same_model_twice": ensemble(TWICE, step("double", {"x": "t"}, {"y": "out"})),
    "join": ensemble(
        TWICE,
        step("plus", {"x": "in"}, {"y": "u"}),
        step("add", {"a": "t", "b": "u"}, {"sum": "out"}),
    ),
    "one_tensor_twice": ensemble(step("add", {"a": "in", "b": "in"}, {"sum": "out"})),
    "two_inputs": ensemble(
        step("add", {"a": "left", "b": "right"}, {"sum": "out"}),
        io=tensor("input", "left") + tensor("input", "right") + tensor("output", "out"),
    ),
    "two_outputs": ensemble(
        step("both", {"x": "in"}, {"negative": "n", "absolute": "a"}),
        io=tensor("input", "in") + tensor("output", "a") + tensor("output", "n"),
    ),
    "an_output_left_out": ensemble(step("both", {"x": "in"}, {"absolute": "out"})),
    "a_tensor_between_as_output": ensemble(
        TWICE, ONCE, io=tensor("input", "in") + tensor("output", "t") + tensor("output", "out")
    ),
    "another_type": ensemble(
        TWICE,
        step("largest", {"x": "t"}, {"index": "out"}),
        io=tensor("input", "in") + tensor("output", "out", "TYPE_INT64", (1,)),
    ),
    "free_dimensions": ensemble(
        step("free", {"x": "in"}, {"y": "t"}),
        step("free", {"x": "t"}, {"y": "out"}),
        io=tensor("input", "in", dims=(-1,)) + tensor("output", "out", dims=(-1,)),
    ),
    "smaller_batch": ensemble(TWICE, ONCE, batch=4),
    "version": ensemble(step("double", {"x": "in"}, {"y": "t"}, 1), ONCE),
    "without_batch": ensemble(
        step("loose", {"x": "in"}, {"y": "out"}),
        io=tensor("input", "in", dims=(-1,)) + tensor("output", "out", dims=(-1,)),
        batch=0,
    ),
    "inner": ensemble(step("chain", {"in": "in"}, {"out": "t"}), step("plus", {"x": "t"}, {"y": "out"})),
    "strings": ensemble(
        step("words", {"INPUT0": "in"}, {"OUTPUT0": "t"}),
        step("words", {"INPUT0": "t"}, {"OUTPUT0": "out"}),
        io=tensor("input", "in", "TYPE_STRING", (-1,)) + tensor("output", "out", "TYPE_STRING", (-1,)),
    ),
}
WRONG = {
    "no_steps": ensemble(),
    "no_model": ensemble(step("", {"x": "in"}, {"y": "out"})),
    "unknown_model": ensemble(step("nothing", {"x": "in"}, {"y": "out"})),
    "unknown_input": ensemble(step("double", {"z": "in"}, {"y": "out"})),
    "unknown_output": ensemble(step("double", {"x": "in"}, {"z": "out"})),
    "input_left_out": ensemble(step("add", {"a": "in"}, {"sum": "out"})),
    "no_input_map": ensemble(step("double", {}, {"y": "out"})),
    "no_output_map": ensemble(step("double", {"x": "in"}, {})),
    "unwritten_output": ensemble(TWICE),
    "unused_input": ensemble(
        TWICE, ONCE, io=tensor("input", "in") + tensor("input", "more") + tensor("output", "out")
    ),
    "written_twice": ensemble(TWICE, ONCE, step("plus", {"x": "in"}, {"y": "out"})),
    "types_differ": ensemble(
        step("largest", {"x": "in"}, {"index": "t"}), step("double", {"x": "t"}, {"y": "out"})
    ),
    "shapes_differ": ensemble(TWICE, ONCE, io=tensor("input", "in", dims=(3,)) + tensor("output", "out")),
    "batch_too_large": ensemble(TWICE, step("narrow", {"x": "t"}, {"y": "out"})),
    "itself": ensemble(step("itself", {"in": "in"}, {"out": "out"})),
    "circle_a": ensemble(step("circle_b", {"in": "in"}, {"out": "out"})),
    "circle_b": ensemble(step("circle_a", {"in": "in"}, {"out": "out"})),
    "instances": ensemble(TWICE, ONCE, more="instance_group { count: 2 kind: KIND_CPU }\n"),
    "no_platform": CHAIN.replace('platform: "ensemble"\n', ""),
    "unknown_version": ensemble(step("double", {"x": "in"}, {"y": "t"}, 7), ONCE),
}


def write(folder: Path) -> None:
    for name, (model, batch) in MEMBERS.items():
        models.place(folder, name, model)
        text = f'backend: "onnxruntime"\nmax_batch_size: {batch}\n'
        if name == "loose":
            text += tensor("input", "x", dims=(-1,)) + tensor("output", "y", dims=(-1,))
        (folder / name / "config.pbtxt").write_text(text)
    for name, text in {**WORKING, **WRONG}.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("ensembles")
    write(folder)
    options = ["--strict-readiness=false", "--exit-on-error=false"]
    try:
        triton = Triton.on_free_ports(Path(os.environ["ORACLE_VENV"]), folder, options)
    except CannotRun as reason:
        pytest.skip(f"no Triton here: {reason}")
    config = '[repository]\nengine = "ort"\n[server]\nstrict_readiness = false\n'
    with triton, Tessera(folder, config) as tessera:
        until(
            lambda: {row["state"] for row in index(tessera)} == {"READY", "UNAVAILABLE"},
            lambda: f"every model is loaded or failed:\n{tessera.log()[-3000:]}",
            60.0,
        )
        triton.wait_ready(240.0)
        yield Pair(tessera, triton)


def index(tessera: Tessera) -> list[dict]:
    import urllib.request

    request = urllib.request.Request(f"{tessera.base_url}/v2/repository/index", b"{}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def inputs_of(name: str, rows: int) -> dict[str, np.ndarray]:
    """Inputs of a working ensemble, from its configuration."""
    random = np.random.default_rng(5)
    found = {}
    for line in WORKING[name].splitlines():
        if line.startswith("input {"):
            tensor_name, dims = line.split('"')[1], json.loads(line[line.index("[") : line.index("]") + 1])
            shape = [3 if dim < 0 else dim for dim in dims]
            shape = shape if name == "without_batch" else [rows, *shape]
            values = random.standard_normal(shape).astype(np.float32)
            is_text = "TYPE_STRING" in line
            found[tensor_name] = values.astype("S6").astype(np.object_) if is_text else values
    return found


def ask(url: str, name: str, given: dict[str, np.ndarray], **options: object) -> dict[str, np.ndarray]:
    client = tgrpc.InferenceServerClient(url)
    tensors = []
    for key, values in given.items():
        one = tgrpc.InferInput(key, list(values.shape), np_to_triton_dtype(values.dtype))
        one.set_data_from_numpy(values)
        tensors.append(one)
    answer = client.infer(name, tensors, **options)
    return {output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", WORKING)
def test_answers_are_tritons(servers: Pair, name: str, rows: int) -> None:
    given = inputs_of(name, rows)
    ours, theirs = (ask(server.grpc_address, name, given) for server in (servers.tessera, servers.triton))
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        assert ours[key].dtype == values.dtype and ours[key].shape == values.shape, key
        np.testing.assert_array_equal(ours[key], values)


@pytest.mark.parametrize("name", WORKING)
def test_metadata_and_configuration_are_tritons(servers: Pair, name: str) -> None:
    (_, ours), (_, theirs) = on_both(servers, f"/v2/models/{name}")
    for key in ("name", "platform", "inputs", "outputs", "versions"):
        assert ours[key] == theirs[key], key
    (_, ours), (_, theirs) = on_both(servers, f"/v2/models/{name}/config")
    assert differences(ours, theirs) <= DIFFERENCES.keys()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ensembles_load_in_neither(servers: Pair, name: str) -> None:
    ours, theirs = on_both(servers, f"/v2/models/{name}/ready")
    assert ours[0] >= 400 and theirs[0] >= 400, (ours, theirs)
    row = next(row for row in index(servers.tessera) if row["name"] == name)
    assert row["state"] == "UNAVAILABLE" and len(row["reason"]) > 10, row


def wrong_requests() -> dict[str, tuple[dict[str, np.ndarray], dict]]:
    row = np.ones((1, WIDTH), np.float32)
    return {
        "another shape": ({"in": np.ones((1, 3), np.float32)}, {}),
        "another type": ({"in": row.astype(np.int32)}, {}),
        "another name": ({"on": row}, {}),
        "too many rows": ({"in": np.ones((9, WIDTH), np.float32)}, {}),
        "another output": ({"in": row}, {"outputs": [tgrpc.InferRequestedOutput("t")]}),
    }


@pytest.mark.parametrize("case", wrong_requests())
def test_wrong_requests_have_tritons_status(servers: Pair, case: str) -> None:
    given, options = wrong_requests()[case]
    statuses = []
    for server in (servers.tessera, servers.triton):
        with pytest.raises(InferenceServerException) as error:
            ask(server.grpc_address, "chain", given, **options)
        statuses.append(error.value.status())
    assert statuses[0] == statuses[1], statuses


def test_only_the_outputs_that_are_asked_for_are_returned(servers: Pair) -> None:
    name = "a_tensor_between_as_output"
    for output in ("t", "out"):
        asked = [tgrpc.InferRequestedOutput(output)]
        assert list(ask(servers.tessera.grpc_address, name, inputs_of(name, 1), outputs=asked)) == [output]
    # This Triton cannot leave the last step out.
    asked = [tgrpc.InferRequestedOutput("t")]
    with pytest.raises(InferenceServerException, match="unexpected deadlock"):
        ask(servers.triton.grpc_address, name, inputs_of(name, 1), outputs=asked)


def test_each_step_counts_as_a_request_to_its_model(servers: Pair) -> None:
    def counts(server: object, model: str) -> int:
        (row,) = tgrpc.InferenceServerClient(server.grpc_address).get_inference_statistics(model, as_json=True)["model_stats"]
        return int(row["inference_stats"]["success"].get("count", 0))

    for server in (servers.tessera, servers.triton):
        before = {model: counts(server, model) for model in ("join", "double", "plus", "add")}
        for _ in range(4):
            ask(server.grpc_address, "join", inputs_of("join", 2))
        after = {model: counts(server, model) - before[model] for model in before}
        assert after == {"join": 4, "double": 4, "plus": 4, "add": 4}, after
