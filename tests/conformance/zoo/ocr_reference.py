"""Prints what the package `rapidocr-onnxruntime` itself reads in each file of a folder, as JSON. Runs in the environment of the example."""

import json
import sys
from pathlib import Path

from rapidocr_onnxruntime import RapidOCR

ocr = RapidOCR()
found = {path.name: ocr(path.read_bytes())[0] or [] for path in sorted(Path(sys.argv[1]).iterdir())}
json.dump(found, sys.stdout)
