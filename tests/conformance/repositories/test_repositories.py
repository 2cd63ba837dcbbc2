"""Repositories in the styles of public Triton examples: served unchanged, with the answers of onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from fixtures.repositories import Repository, all_repositories
from fixtures.tessera import Tessera
from fixtures.wait import until
from tritonclient.utils import np_to_triton_dtype

REPOSITORIES = all_repositories()

# |answer - reference| <= absolute + relative * |reference|, by the size of an element.
TOLERANCE = {8: (1e-9, 1e-7), 4: (1e-5, 1e-4), 2: (2e-3, 1e-2)}


def ask(server: Tessera, repository: Repository, module) -> dict[str, np.ndarray]:
    client = module.InferenceServerClient(server.http_address if module is thttp else server.grpc_address)
    tensors = []
    for name, array in repository.request.items():
        tensor = module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    answer = client.infer(repository.name, tensors)
    outputs = answer.get_response()["outputs"] if module is thttp else answer.get_response().outputs
    names = [output["name"] if isinstance(output, dict) else output.name for output in outputs]
    found = {name: answer.as_numpy(name) for name in names}
    client.close()
    return found


def expected(repository: Repository) -> dict[str, np.ndarray]:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        repository.model.SerializeToString(), quiet, providers=["CPUExecutionProvider"]
    )
    feeds = {}
    for name, array in repository.request.items():
        feeds[name] = array.reshape(repository.graph_shapes.get(name, array.shape))
        if array.dtype == np.object_:
            feeds[name] = np.array([[text.decode() for text in row] for row in array], dtype=np.object_)
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(names, feeds)))
    return {name: answer.reshape(repository.answer_shapes.get(name, answer.shape)) for name, answer in answers.items()}


def test_there_are_many_of_every_field() -> None:
    assert len({repository.name for repository in REPOSITORIES}) == len(REPOSITORIES) >= 40
    for field in ("vision", "text", "audio", "tabular"):
        assert sum(repository.field == field for repository in REPOSITORIES) >= 5, field


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda repository: repository.name)
def test_is_served_unchanged(tmp_path: Path, repository: Repository) -> None:
    repository.write(tmp_path)
    wanted = expected(repository)
    with Tessera(tmp_path, config='[repository]\nengine = "ort"\n') as server:
        # Versions that the policy leaves out are listed as not loaded.
        failed = [row for row in server.announced["models"] if row.get("reason", "not loaded") != "not loaded"]
        assert not failed, failed
        until(server.is_ready, server.log)
        for module in (thttp, tgrpc):
            found = ask(server, repository, module)
            assert set(found) == set(wanted)
            for name, array in wanted.items():
                assert found[name].shape == array.shape, name
                if array.dtype.kind != "f":
                    given = found[name]
                    if array.dtype == np.object_:
                        given = np.vectorize(bytes.decode, otypes=[np.object_])(given)
                    np.testing.assert_array_equal(given, array)
                    continue
                absolute, relative = TOLERANCE[array.dtype.itemsize]
                np.testing.assert_allclose(found[name], array, rtol=relative, atol=absolute)
