"""`EXECUTION_ENV_PATH`: environments in archives and folders, and what is wrong with others."""

from __future__ import annotations

import sysconfig
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient
from fixtures.tessera import Tessera
from fixtures.wait import until
from python_backend import archive
from python_backend.conftest import MODELS

CODE = (MODELS / "own_environment" / "1" / "model.py").read_text()
CONFIG = (MODELS / "own_environment" / "config.pbtxt").read_text()
PACKED = "$$TRITON_MODEL_DIRECTORY/environment.tar.gz"
NUMPY = Path(sysconfig.get_path("purelib"))
# The interpreter of the archive is used, not this one.
NO_PYTHON = {"PATH": "/usr/bin:/bin"}


def place(repository: Path, name: str, path: str) -> Path:
    """A model with this `EXECUTION_ENV_PATH`; returns its folder."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(CODE)
    (repository / name / "config.pbtxt").write_text(CONFIG.replace(PACKED, path))
    return repository / name


def answer(server: Tessera, name: str) -> list[bytes]:
    with httpclient.InferenceServerClient(server.http_address) as client:
        tensor = httpclient.InferInput("IN", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([b"a"], np.object_))
        return client.infer(name, [tensor]).as_numpy("OUT").tolist()


def test_each_model_has_the_environment_that_it_names(tmp_path: Path):
    """In the model's folder, elsewhere, and unpacked already."""
    repository, elsewhere = tmp_path / "repository", tmp_path / "elsewhere.tar.gz"
    archive.write(place(repository, "own", PACKED) / "environment.tar.gz", "own", NUMPY)
    archive.write(elsewhere, "elsewhere", NUMPY)
    place(repository, "absolute", str(elsewhere))
    place(repository, "shared", str(elsewhere))
    folder = place(repository, "unpacked", "$$TRITON_MODEL_DIRECTORY/environment") / "environment"
    with tarfile.open(elsewhere) as packed:
        packed.extractall(folder, filter="fully_trusted")
    packages = f"{archive.PACKAGES}/only_here.py".encode()
    with Tessera(repository, environment=NO_PYTHON) as server:
        server.wait_ready(60)
        for name, word in [("own", b"own"), ("absolute", b"elsewhere"), ("shared", b"elsewhere"), ("unpacked", b"elsewhere")]:
            assert answer(server, name) == [word, packages, b"True"]


def test_a_changed_archive_is_unpacked_again(tmp_path: Path):
    folder = place(tmp_path, "own", PACKED)
    archive.write(folder / "environment.tar.gz", "first", NUMPY)
    with Tessera(tmp_path, environment=NO_PYTHON) as server, httpclient.InferenceServerClient(server.http_address) as client:
        server.wait_ready(60)
        assert answer(server, "own")[0] == b"first"
        archive.write(folder / "environment.tar.gz", "second", NUMPY)
        # A load of unchanged files keeps the sessions, so the model's file changes too.
        (folder / "1" / "model.py").write_text(CODE + "\n")
        client.load_model("own")
        until(lambda: answer(server, "own")[0] == b"second", server.log, 30)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"no archive", "expected a folder or a .tar.gz archive"),
        ("empty", "expected an interpreter at bin/python3"),
    ],
)
def test_a_wrong_environment_is_named(tmp_path: Path, content: object, reason: str):
    file = place(tmp_path, "own", PACKED) / "environment.tar.gz"
    if content == "empty":
        with tarfile.open(file, "w:gz") as packed:
            packed.add(__file__, "file")
    elif content is not None:
        file.write_bytes(content)
    with Tessera(tmp_path, environment=NO_PYTHON) as server:
        until(lambda: server.logged("cannot load"), server.log, 30)
        said = server.logged("cannot load")[0]["reason"]
    assert f"parameters.EXECUTION_ENV_PATH: `{PACKED}`" in said
    assert reason in said
