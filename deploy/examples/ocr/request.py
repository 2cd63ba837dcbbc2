#!/usr/bin/env python3
"""Sends an image to the pipeline `ocr`, and prints a line for each text: its score, the corners of its box, and the text.

    deploy/examples/ocr/request.py photo.png [http://127.0.0.1:8000]
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path


def read(url: str, content: bytes) -> list[tuple[float, list[list[float]], str]]:
    """Score, corners and text of each line."""
    tensor = {"name": "image", "datatype": "UINT8", "shape": [len(content)], "parameters": {"binary_data_size": len(content)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/ocr/infer", header + content)
    request.add_header("Inference-Header-Content-Length", str(len(header)))
    with urllib.request.urlopen(request, timeout=60) as answer:
        outputs = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
    corners = [[outputs["boxes"][at : at + 2] for at in range(first, first + 8, 2)] for first in range(0, len(outputs["boxes"]), 8)]
    return list(zip(outputs["scores"], corners, outputs["texts"]))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    url = sys.argv[2] if len(sys.argv) == 3 else "http://127.0.0.1:8000"
    try:
        content = Path(sys.argv[1]).read_bytes()
    except OSError as error:
        sys.exit(f"error: cannot read `{sys.argv[1]}`: {error.strerror}")
    try:
        lines = read(url, content)
    except urllib.error.HTTPError as error:
        sys.exit(f"error: {json.load(error)['error']}")
    except urllib.error.URLError as error:
        sys.exit(f"error: no server answers at {url}: {error.reason}: expected `tessera serve --config ocr/tessera.toml`")
    for score, corners, text in lines:
        print(f"{score:.3f}", " ".join(f"{x:.0f},{y:.0f}" for x, y in corners), text)


if __name__ == "__main__":
    main()
