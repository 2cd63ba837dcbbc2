"""Real models: every answer equals that of onnxruntime within the tolerance below.

`models/zoo.py --reference` computes the references with the pinned onnxruntime. Each test loads one model through the
repository interface, sends requests over HTTP and gRPC, and unloads it, so the zoo fits a small machine.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from fixtures import models, seeded
from fixtures.tessera import Tessera
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "models"))
import reference  # noqa: E402

ZOO = Path(os.environ.get("TESSERA_ZOO", "zoo"))
NAMES = sorted(path.parent.name for path in ZOO.glob("*/reference.npz"))

# The variant with a free batch runs the same graph, on the same cases and on batches of them: --long runs both.
REPEATED = {name for name in NAMES if f"{name}_batched" in NAMES} - {"squeezenet"}

# |answer - reference| <= absolute + relative * |reference|. The order of sums depends on the batch size and the
# number of threads; tract has its own kernels.
TOLERANCE = {"ort": (1e-5, 1e-4), "tract": (1e-4, 2e-3)}

# Models that tract 0.23 cannot load, and the operator that its error names.
TRACT_REFUSES = {"silero_vad": "operator If", "silero_vad_op15": "operator If"}


class Client:
    """Both transports of one server."""

    def __init__(self, server: Tessera) -> None:
        self.http = thttp.InferenceServerClient(server.http_address, network_timeout=120.0, connection_timeout=120.0)
        self.grpc = tgrpc.InferenceServerClient(server.grpc_address)

    def ask(self, model: str, case: dict[str, np.ndarray], module) -> dict[str, np.ndarray]:
        tensors = []
        for name, array in case.items():
            tensor = module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        answer = (self.http if module is thttp else self.grpc).infer(model, tensors)
        outputs = answer.get_response()["outputs"] if module is thttp else answer.get_response().outputs
        names = [output["name"] if isinstance(output, dict) else output.name for output in outputs]
        return {name: answer.as_numpy(name) for name in names}


@pytest.fixture(scope="module", params=["ort", "tract"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def client(engine: str) -> Iterator[Client]:
    settings = (ZOO / "tessera.toml").read_text()
    with Tessera(ZOO, config=f'[repository]\nload = "explicit"\nengine = "{engine}"\n\n{settings}') as server:
        yield Client(server)


def assert_close(engine: str, name: str, found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest deviation in units of the tolerance."""
    absolute, relative = TOLERANCE[engine]
    assert found.shape == wanted.shape, f"{name}: shape {found.shape}, expected {wanted.shape}"
    assert found.dtype == wanted.dtype
    if not wanted.size:
        return 0.0
    excess = np.abs(found.astype(np.float64) - wanted) / (absolute + relative * np.abs(wanted))
    assert excess.max() <= 1.0, (
        f"{name}: off by {excess.max():.2f} tolerances at {np.unravel_index(excess.argmax(), excess.shape)}"
    )
    return float(excess.max())


@pytest.mark.parametrize("name", NAMES)
def test_equals_onnxruntime(request: pytest.FixtureRequest, client: Client, engine: str, name: str) -> None:
    if name in REPEATED and not request.config.getoption("--long"):
        pytest.skip(f"the same graph as {name}_batched: only with --long")
    if engine == "tract" and name in TRACT_REFUSES:
        with pytest.raises(InferenceServerException) as caught:
            client.http.load_model(name)
        assert name in caught.value.message() and TRACT_REFUSES[name] in caught.value.message()
        return
    client.http.load_model(name)
    try:
        cases = reference.read(ZOO / name / "reference.npz")
        worst = 0.0
        for i, (case, wanted) in enumerate(cases):
            found = client.ask(name, case, tgrpc if i % 2 else thttp)
            assert set(found) == set(wanted)
            worst = max([worst, *(assert_close(engine, f"case {i} {key}", found[key], wanted[key]) for key in wanted)])
        if name.endswith("_batched"):
            stacked = {key: np.concatenate([case[key] for case, _ in cases]) for key in cases[0][0]}
            found = client.ask(name, stacked, thttp)
            for key in found:
                wanted = np.concatenate([answers[key] for _, answers in cases])
                worst = max(worst, assert_close(engine, f"batch of {len(cases)} {key}", found[key], wanted))
        print(f"{engine} {name}: {len(cases)} cases, worst deviation {worst:.3f} of the tolerance")
    finally:
        client.http.unload_model(name)


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_ifless"])
def test_a_stateful_model_continues_from_the_returned_state(client: Client, engine: str, name: str) -> None:
    """The state that a stateful model returns is the input for the next chunk."""
    if engine == "tract" and name in TRACT_REFUSES:
        pytest.skip("test_equals_onnxruntime checks the refusal")
    session = onnxruntime.InferenceSession(str(ZOO / name / "1" / "model.onnx"))
    client.http.load_model(name)
    try:
        state = mirror = np.zeros((2, 1, 128), np.float32)
        for case in list(reference.cases(name))[:3]:
            found = client.ask(name, {**case, "state": state}, thttp)
            wanted = dict(zip(["output", "stateN"], session.run(["output", "stateN"], {**case, "state": mirror})))
            state, mirror = found["stateN"], wanted["stateN"]
            assert_close(engine, "output", found["output"], wanted["output"])
            assert_close(engine, "stateN", state, mirror)
    finally:
        client.http.unload_model(name)


@pytest.mark.parametrize("name", seeded.CLASSIFIER)
def test_rows_of_a_freed_batch_do_not_affect_each_other(engine: str, name: str, tmp_path: Path) -> None:
    """Models with a batch fixed at 1 that opt in to a free batch give each row the same answer as alone."""
    model = seeded.read(ZOO, name)
    models.place(tmp_path, name, model)
    image = next(iter(reference.cases(name)))
    ((tensor, photo),) = image.items()
    rows = [photo, -20.0 * photo, 6.0 * photo[..., ::-1]]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = np.concatenate([session.run(None, {tensor: row})[0] for row in rows])
    apart = min(np.abs(wanted[i] - wanted[j]).max() for i, j in ((0, 1), (0, 2), (1, 2)))
    assert apart > 1e-3, "the answers must differ, or mixed rows would not show"
    config = f'[repository]\nengine = "{engine}"\n[models.{name}]\nslo = "30s"\nfree_batch = true\nmax_batch = 4\n'
    with Tessera(tmp_path, config=config) as server:
        server.wait_ready(120)
        found = Client(server).ask(name, {tensor: np.concatenate(rows)}, thttp)
    (answer,) = found.values()
    worst = assert_close(engine, name, answer, wanted)
    print(f"{engine} {name} seeded, 3 rows: worst deviation {worst:.3f} of the tolerance")


def test_zoo_settings_are_for_models_that_exist() -> None:
    tables = tomllib.loads((ZOO / "tessera.toml").read_text())["models"]
    assert set(tables) == {path.parent.parent.name for path in ZOO.glob("*/1/model.onnx")}
    assert len(NAMES) >= 29
