#!/usr/bin/env python3
"""Builds a model repository that reads the text of images, from the package `rapidocr-onnxruntime`.

    deploy/examples/ocr/build.py ocr           about 430 MB: a Python environment, three ONNX models, four Python models
    tessera serve --config ocr/tessera.toml
    deploy/examples/ocr/request.py photo.png

A second run keeps the environment if the requirements are the same.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from groups import GROUPS

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"

MODELS = {
    "det": "ch_PP-OCRv4_det_infer.onnx",
    "cls": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rec": "ch_PP-OCRv4_rec_infer.onnx",
}
MOST_ROWS = {"det": 4, "cls": 64, "rec": 6}
# Tensors of the Python models: name, data type, dimensions.
IMAGE = ("TYPE_UINT8", "1, -1, -1, 3")
MAP = ("TYPE_FP32", "1, 1, -1, -1")
FRAME = ("TYPE_FP64", "1, 6")
BOXES = ("TYPE_FP32", "-1, 4, 2")
SIZES = ("TYPE_INT32", "-1, 2")
NUMBERS = range(1, GROUPS + 1)
STAGES = {
    "prepare": (
        {"image": ("TYPE_UINT8", "-1")},
        {"pixels": IMAGE, "frame": FRAME, "x": ("TYPE_FP32", "1, 3, -1, -1")},
    ),
    "crop": (
        {"pixels": IMAGE, "found": MAP, "frame": FRAME},
        {"boxes": BOXES, "x": ("TYPE_FP32", "-1, 3, 48, 192"), "sizes": SIZES, "crops": ("TYPE_UINT8", "-1")},
    ),
    "rotate": (
        {"crops": ("TYPE_UINT8", "-1"), "sizes": SIZES, "scores": ("TYPE_FP32", "-1, 2")},
        {"order": ("TYPE_INT32", "-1"), **{f"lines{number}": ("TYPE_FP32", "-1, 3, 48, -1") for number in NUMBERS}},
    ),
    "decode": (
        {
            "boxes": BOXES,
            "order": ("TYPE_INT32", "-1"),
            **{f"scores{number}": ("TYPE_FP32", "-1, -1, 6625") for number in NUMBERS},
        },
        {"boxes": BOXES, "texts": ("TYPE_STRING", "-1"), "scores": ("TYPE_FP32", "-1")},
    ),
}
# Prints the characters that the recognition model knows, which its file contains.
CHARACTERS = """
import sys, onnxruntime
metadata = onnxruntime.InferenceSession(sys.argv[1]).get_modelmeta().custom_metadata_map
sys.stdout.buffer.write(metadata["character"].encode())
"""
SETTINGS = """# Written by build.py.
[repository]
path = "{models}"
engine = "ort"
ort_library = "{library}"

{sections}
[pipelines.ocr]
slo = "{slo}"
stages = [
  {{ model = "prepare" }},
  {{ model = "det", from = "prepare" }},
  {{ model = "crop", from = "prepare", inputs = {{ found = "det.sigmoid_0.tmp_0" }}, fan_out = 6 }},
  {{ model = "cls", from = "crop" }},
  {{ model = "rotate", from = "crop", inputs = {{ scores = "cls.save_infer_model/scale_0.tmp_1" }} }},
{groups}
  {{ model = "decode", from = ["crop", "rotate"], inputs = {{ {taken} }} }},
]
outputs = {{ boxes = "decode.boxes", texts = "decode.texts", scores = "decode.scores" }}
"""


def install(environment: Path) -> Path:
    """A Python environment with the package; returns the folder of its packages."""
    python, stamp = environment / "bin" / "python", environment / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--requirement", REQUIREMENTS], check=True)
        shutil.copy(REQUIREMENTS, stamp)
    return next(environment.glob("lib/python3*/site-packages"))


def tensors(side: str, specs: dict[str, tuple[str, str]]) -> str:
    return "".join(f'{side} {{ name: "{name}" data_type: {kind} dims: [ {dims} ] }}\n' for name, (kind, dims) in specs.items())


def place(folder: Path, packages: Path, python: Path) -> None:
    """The models in Triton's layout."""
    for name, file in MODELS.items():
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(packages / "rapidocr_onnxruntime" / "models" / file, folder / name / "1" / "model.onnx")
    command = [python, "-c", CHARACTERS, folder / "rec" / "1" / "model.onnx"]
    characters = subprocess.run(command, check=True, capture_output=True).stdout
    for name, (inputs, outputs) in STAGES.items():
        version = folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "stages" / f"{name}.py", version / "model.py")
        for file in ("package.py", "groups.py"):
            shutil.copy(HERE / file, version)
        (version / "characters.txt").write_bytes(characters)
        text = f'backend: "python"\nmax_batch_size: 0\n{tensors("input", inputs)}{tensors("output", outputs)}'
        (folder / name / "config.pbtxt").write_text(text)


def settings(folder: Path, python: Path, library: Path, slo: str) -> str:
    sections = [f"[models.{name}]\nmax_batch = {rows}\n" for name, rows in MOST_ROWS.items()]
    sections += [f'[models.{name}]\npython = "{python}"\nsample_runs = false\n' for name in STAGES]
    groups = [f'  {{ name = "rec{number}", model = "rec", inputs = {{ x = "rotate.lines{number}" }} }},' for number in NUMBERS]
    taken = [f'scores{number} = "rec{number}.softmax_11.tmp_0"' for number in NUMBERS]
    parts = {"sections": "\n".join(sections), "groups": "\n".join(groups), "taken": ", ".join(taken)}
    return SETTINGS.format(models=folder, library=library, slo=slo, **parts)


def build(out: Path, slo: str = "10s") -> None:
    """Writes everything under `out`."""
    out = out.resolve()
    environment = out / "environment"
    packages, python = install(environment), environment / "bin" / "python"
    place(out / "models", packages, python)
    library = next((packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*"))
    (out / "tessera.toml").write_text(settings(out / "models", python, library, slo))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write, such as `ocr`")
    parser.add_argument("--slo", default="10s", help="objective of the pipeline (default: %(default)s)")
    arguments = parser.parse_args()
    build(arguments.out, arguments.slo)
    print(f"tessera serve --config {arguments.out / 'tessera.toml'}")


if __name__ == "__main__":
    main()
