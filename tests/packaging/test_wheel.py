"""The Python wheel: installed into an empty environment, it serves with the ONNX Runtime that comes with it."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from fixtures.client import Client, get
from fixtures.tessera import Tessera
from programs import ROOT, need, run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("objdump", "strip", "cargo")
    folder = tmp_path_factory.mktemp("wheel")
    return Path(run(ROOT / "deploy/wheel/build", "--binary", os.environ["TESSERA_BIN"], "--out", folder).strip())


def test_the_wheel_runs_on_the_systems_that_its_name_says(wheel: Path) -> None:
    print(f"\nwheel: {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
    report = run(sys.executable, "-m", "auditwheel", "show", wheel)
    tag = wheel.stem.split("-")[-1]
    assert f'"{tag}"' in report.replace("\n", " "), report


def test_the_record_has_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        record = next(name for name in names if name.endswith("RECORD"))
        assert {line.split(",")[0] for line in archive.read(record).decode().splitlines()} == names
        assert archive.testzip() is None


def test_an_environment_with_the_wheel_serves_with_its_own_onnxruntime(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin/python", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-compile", wheel, seconds=300)
    assert (venv / "share/man/man1/tessera.1").is_file()
    # As after `pip install`, without activating the environment: nothing in the process's environment points to it.
    personal = tmp_path / "personal"
    personal.mkdir()
    bare = {"VIRTUAL_ENV": "", "ORT_DYLIB_PATH": "", "PATH": "/usr/bin:/bin", "HOME": str(personal)}
    with Tessera(ROOT / "models/bundled", environment=bare, binary=venv / "bin/tessera") as server:
        server.wait_ready()
        assert get(f"{server.base_url}/v2/models/digits")["platform"] == "onnxruntime_onnx"
        assert str(venv) in server.log(), "the library in use is logged"
        sample = json.loads((ROOT / "models/bundled/digits/sample.json").read_text())
        _, answer, _ = Client(server).post("/v2/models/digits/infer", sample)
        assert answer["outputs"][-1]["data"] == [7], answer
    assert not list(personal.rglob("*")), "ONNX Runtime keeps no usage data"
