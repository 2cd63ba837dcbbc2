"""Repositories in the styles of public Triton examples, in Tessera and in a real Triton: the same answers, metadata,
configuration and errors."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from fixtures.repositories import Repository, all_repositories
from fixtures.tessera import Tessera
from fixtures.wait import until
from oracle.triton import CannotRun, Triton
from triton.conftest import Pair
from triton.test_config import differences

# Repositories that Tessera serves and Triton refuses, with words of the reason.
REFUSED = {"silero_like_vad": "scalar tensors are not supported"}
REPOSITORIES = [repository for repository in all_repositories() if repository.name not in REFUSED]
NAMES = [repository.name for repository in REPOSITORIES]

# Differences of all configurations, and of single ones; test_config.py has the reasons.
EVERYWHERE = {"parameters.tessera.engine", "parameters.tessera.policy"}
INFERRED = {"max_batch_size", "dynamic_batching"}
SINGLE = {
    "no_config": INFERRED,
    "only_backend": INFERRED,
    "inception_graphdef": {"instance_group[0].count"},
    "xgboost_onnx": {"instance_group[0].count"},
}

# |answer - reference| <= absolute + relative * |reference|, by the size of an element.
TOLERANCE = {8: (1e-9, 1e-7), 4: (1e-5, 1e-4), 2: (2e-3, 1e-2)}


def write(folder: Path) -> None:
    """All repositories in one. Triton refuses KIND_GPU on a machine without a GPU."""
    for repository in all_repositories():
        repository.write(folder)
        config = folder / repository.name / "config.pbtxt"
        if config.exists():
            config.write_text(config.read_text().replace("KIND_GPU", "KIND_CPU").replace(", gpus: [ 0 ]", ""))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("repositories")
    write(folder)
    try:
        triton = Triton.on_free_ports(Path(os.environ["ORACLE_VENV"]), folder, ["--strict-readiness=false"])
    except CannotRun as reason:
        pytest.skip(f"no Triton here: {reason}")
    with triton, Tessera(folder, '[repository]\nengine = "ort"\n') as tessera:
        until(tessera.is_ready, lambda: f"Tessera is ready:\n{tessera.log()[-3000:]}", 60.0)
        # It starts a process for each model.
        triton.wait_ready(240.0)
        yield Pair(tessera, triton)


def call(url: str, body: bytes | None = None) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def on_both(servers: Pair, path: str, body: bytes | None = None) -> tuple[tuple[int, dict], tuple[int, dict]]:
    return call(f"{servers.tessera.base_url}{path}", body), call(f"{servers.triton.base_url}{path}", body)


def ask(server: Tessera | Triton, repository: Repository, module) -> tuple[str, str, dict[str, tuple[str, np.ndarray]]]:
    """Name and version of the model, and its outputs in their order: name -> datatype and elements."""
    tensors = []
    for name, array in repository.request.items():
        tensors.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    with module.InferenceServerClient(server.http_address if module is thttp else server.grpc_address) as client:
        answer = client.infer(repository.name, tensors)
    response = answer.get_response()
    if module is thttp:
        datatypes = {output["name"]: output["datatype"] for output in response["outputs"]}
        model = response["model_name"], response["model_version"]
    else:
        datatypes = {output.name: output.datatype for output in response.outputs}
        model = response.model_name, response.model_version
    return *model, {name: (datatype, answer.as_numpy(name)) for name, datatype in datatypes.items()}


def test_triton_and_tessera_load_the_same_versions(servers: Pair) -> None:
    (_, ours), (_, theirs) = on_both(servers, "/v2/repository/index", b"{}")

    def ready(index: list[dict]) -> set[tuple[str, str]]:
        return {(row["name"], row["version"]) for row in index if row.get("state") == "READY"}

    assert len(REPOSITORIES) >= 40
    assert ready(ours) - ready(theirs) == {(name, "1") for name in REFUSED}
    assert ready(theirs) <= ready(ours)
    assert {name for name, _ in ready(theirs)} == set(NAMES)
    for row in theirs:
        if row["name"] in REFUSED:
            assert REFUSED[row["name"]] in row["reason"]


@pytest.mark.parametrize("module", [thttp, tgrpc], ids=["http", "grpc"])
@pytest.mark.parametrize("repository", REPOSITORIES, ids=NAMES)
def test_answers_are_tritons(servers: Pair, repository: Repository, module) -> None:
    ours, theirs = (ask(server, repository, module) for server in (servers.tessera, servers.triton))
    assert ours[:2] == theirs[:2]
    assert list(ours[2]) == list(theirs[2])
    for (datatype, our), (expected, their) in zip(ours[2].values(), theirs[2].values(), strict=True):
        assert (datatype, our.shape) == (expected, their.shape)
        if our.dtype.kind != "f":
            np.testing.assert_array_equal(our, their)
            continue
        absolute, relative = TOLERANCE[our.dtype.itemsize]
        np.testing.assert_allclose(our, their, rtol=relative, atol=absolute)


@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_tritons(servers: Pair, name: str) -> None:
    ours, theirs = on_both(servers, f"/v2/models/{name}")
    assert ours == theirs
    assert ours[0] == 200


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_is_tritons(servers: Pair, name: str) -> None:
    (_, ours), (_, theirs) = on_both(servers, f"/v2/models/{name}/config")
    assert differences(ours, theirs) == EVERYWHERE | SINGLE.get(name, set())


def mistakes(repository: Repository, max_batch_size: int) -> Iterator[tuple[str, object]]:
    """What is wrong, and the body of a request."""
    inputs = [
        {
            "name": name,
            "datatype": np_to_triton_dtype(array.dtype),
            "shape": list(array.shape),
            "data": [each.decode() if isinstance(each, bytes) else each for each in array.reshape(-1).tolist()],
        }
        for name, array in repository.request.items()
    ]
    first, *others = inputs
    other = "INT32" if first["datatype"] != "INT32" else "INT64"
    yield "an unknown input", {"inputs": [{**first, "name": "absent"}, *others]}
    yield "an input too many", {"inputs": [*inputs, {**first, "name": "absent"}]}
    yield "an input too few", {"inputs": inputs[:-1]}
    yield "an input twice", {"inputs": [first, *inputs]}
    yield "a wrong datatype", {"inputs": [{**first, "datatype": other, "data": [1] * len(first["data"])}, *others]}
    yield "an unknown datatype", {"inputs": [{**first, "datatype": "FP31"}, *others]}
    yield "a wrong rank", {"inputs": [{**first, "shape": [1, *first["shape"], 1]}, *others]}
    yield "an unknown output", {"inputs": inputs, "outputs": [{"name": "absent"}]}
    yield "an element too few", {"inputs": [{**first, "data": first["data"][:-1]}, *others]}
    yield "no inputs", {}
    yield "broken JSON", None
    if max_batch_size > 0:
        rows = max_batch_size + 1
        wide = [(one, len(one["data"]) // one["shape"][0]) for one in inputs]
        yield (
            "a row too many",
            {"inputs": [{**one, "shape": [rows, *one["shape"][1:]], "data": one["data"][:row] * rows} for one, row in wide]},
        )


# Here, a client's mistake is a 400 everywhere. Triton answers 500 to these.
SERVER_ERRORS = {"an element too few", "no inputs", "broken JSON"}
# Triton counts the elements of text itself, and refuses FP16 as JSON before it counts.
COUNTED = {"string_normalizer", "half"}


@pytest.mark.parametrize("repository", REPOSITORIES, ids=NAMES)
def test_both_refuse_the_same_mistakes(servers: Pair, repository: Repository) -> None:
    path = f"/v2/models/{repository.name}"
    _, config = call(f"{servers.triton.base_url}{path}/config")
    for what, body in mistakes(repository, config["max_batch_size"]):
        encoded = b"{broken" if body is None else json.dumps(body).encode()
        ours, theirs = on_both(servers, f"{path}/infer", encoded)
        counted = what == "an element too few" and repository.name in COUNTED
        refused = 500 if what in SERVER_ERRORS and not counted else 400
        if SINGLE.get(repository.name) == INFERRED and what == "a row too many":
            # The batch size is Tessera's default, which is larger.
            assert (ours[0], theirs[0]) == (200, 400)
            continue
        assert (ours[0], theirs[0]) == (400, refused), what
        if "absent" in theirs[1]["error"]:
            assert "absent" in ours[1]["error"], what


@pytest.mark.parametrize("repository", REPOSITORIES, ids=NAMES)
def test_both_refuse_the_same_mistakes_over_grpc(servers: Pair, repository: Repository) -> None:
    def mistake(server: Tessera | Triton, what: str) -> tuple[str, str]:
        tensors = []
        for name, array in repository.request.items():
            tensor = tgrpc.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        first, output = tensors[0], None
        if what == "input":
            tensors[0] = tgrpc.InferInput("absent", first.shape(), first.datatype())
            tensors[0].set_data_from_numpy(next(iter(repository.request.values())))
        elif what == "rank":
            first.set_shape([1, *first.shape(), 1])
        elif what == "bytes":
            first._raw_content = first._raw_content[:-1]
        else:
            output = [tgrpc.InferRequestedOutput("absent")]
        with tgrpc.InferenceServerClient(server.grpc_address) as client, pytest.raises(InferenceServerException) as raised:
            client.infer(repository.name, tensors, outputs=output)
        return raised.value.status(), raised.value.message()

    for what in ("input", "rank", "bytes", "output"):
        ours, theirs = (mistake(server, what) for server in (servers.tessera, servers.triton))
        assert (ours[0], theirs[0]) == ("StatusCode.INVALID_ARGUMENT",) * 2, (what, ours, theirs)
