"""The image of the server, and what runs it. Without containers on this machine, these tests are skipped with the reason."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.containers import CannotRun, Containers  # noqa: E402
from programs import ROOT, need, run  # noqa: E402


@dataclass(frozen=True)
class Image:
    """The built image: its name, what podman says of it, and its list of components."""

    name: str
    containers: Containers
    description: dict
    components: Path


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    need("buildah", "podman", "runc")
    folder = tmp_path_factory.mktemp("containers")
    containers = Containers(folder)
    try:
        containers.prove(folder)
    except CannotRun as reason:
        pytest.skip(f"this machine does not run containers: {reason}")
    # `onnxruntime/capi/libonnxruntime.so.VERSION`
    package = Path(os.environ["ORT_DYLIB_PATH"]).parents[1]
    options = ["--binary", os.environ["TESSERA_BIN"], "--onnxruntime", package, "--sbom", folder / "sbom.json"]
    name = run(ROOT / "deploy/image/build", *options, **containers.environment).strip()
    description = json.loads(containers.podman("image", "inspect", name))[0]
    yield Image(name, containers, description, folder / "sbom.json")
    containers.remove()
