"""The example `deploy/examples/ocr`: the pipeline gives what the package gives whose models and code it runs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from fixtures.client import get
from fixtures.images_with_text import fetch
from fixtures.tessera import Tessera
from tritonclient.utils import InferenceServerException

OCR = Path(os.environ.get("TESSERA_OCR", "ocr"))
EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "examples" / "ocr"


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(fetch(OCR / "images").iterdir())}


@pytest.fixture(scope="module")
def reference(images: dict[str, bytes]) -> dict[str, list]:
    script = Path(__file__).with_name("ocr_reference.py")
    command = [OCR / "environment" / "bin" / "python", script, OCR / "images"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[Tessera]:
    settings = (OCR / "tessera.toml").read_text().replace('slo = "10s"', 'slo = "60s"')
    with Tessera(OCR / "models", settings) as server:
        yield server.wait_ready(120)


def read(server: Tessera, content: bytes, module=thttp) -> list[list]:
    """Box, text and score of each line, as the package gives them."""
    tensor = module.InferInput("image", [len(content)], "UINT8")
    tensor.set_data_from_numpy(np.frombuffer(content, np.uint8))
    if module is thttp:
        client = thttp.InferenceServerClient(server.http_address, network_timeout=120, connection_timeout=120)
    else:
        client = tgrpc.InferenceServerClient(server.grpc_address)
    with client:
        answer = client.infer("ocr", [tensor])
    boxes, texts, scores = (answer.as_numpy(name) for name in ("boxes", "texts", "scores"))
    assert len(boxes) == len(texts) == len(scores)
    return [[box.tolist(), text.decode(), float(score)] for box, text, score in zip(boxes, texts, scores)]


def assert_same(name: str, found: list[list], wanted: list[list]) -> None:
    assert [text for _, text, _ in found] == [text for _, text, _ in wanted], name
    for (box, text, score), (wanted_box, _, wanted_score) in zip(found, wanted):
        assert np.abs(np.subtract(box, wanted_box)).max() <= 1.0, (name, text)
        assert abs(score - wanted_score) <= 1e-3, (name, text)


def test_boxes_texts_and_scores_equal_those_of_the_package(
    server: Tessera, images: dict[str, bytes], reference: dict[str, list]
) -> None:
    """Images run four at a time, so lines of different images are in one batch."""
    with ThreadPoolExecutor(4) as pool:
        modules = [(thttp, tgrpc)[number % 2] for number in range(len(images))]
        answers = dict(zip(images, pool.map(lambda content, module: read(server, content, module), images.values(), modules)))
    for name, found in answers.items():
        assert_same(name, found, reference[name])
    lines = sum(map(len, answers.values()))
    print(f"{len(images)} images with {lines} lines equal the package")
    assert lines >= 150 and sum(map(bool, answers.values())) >= 12


def test_an_image_without_text_has_no_rows_and_skips_the_models_of_lines(server: Tessera, images: dict[str, bytes]) -> None:
    def runs() -> list[int]:
        stats = [get(f"{server.base_url}/v2/models/{model}/stats")["model_stats"][0] for model in ("det", "cls", "rec")]
        return [one["execution_count"] for one in stats]

    before = runs()
    assert read(server, images["blank.png"]) == []
    assert np.subtract(runs(), before).tolist() == [1, 0, 0]


@pytest.mark.parametrize("module", [thttp, tgrpc])
def test_a_damaged_image_is_refused(server: Tessera, images: dict[str, bytes], module) -> None:
    for content, expected in ((b"no image", "the format is unknown"), (images["baiona.png"][:5000], "truncated")):
        with pytest.raises(InferenceServerException) as caught:
            read(server, content, module)
        assert "input `image`: expected a file such as JPEG or PNG" in caught.value.message()
        assert expected in caught.value.message()
        assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_the_command_of_the_example_prints_lines(server: Tessera, reference: dict[str, list]) -> None:
    command = ["python3", EXAMPLE / "request.py", OCR / "images" / "crom.png", server.base_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f" {reference['crom.png'][0][1]}\n"), done.stdout
