"""onnxruntime's own answers to seeded, realistic inputs: the reference for every engine.

One file a model, reference.npz, with arrays named `<case>.in.<tensor>` and `<case>.out.<tensor>`. Models whose
batch is fixed at 1 have cases of one row only; a freed batch is checked by stacking those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime

ONNXRUNTIME = "1.31.0"
Case = dict[str, np.ndarray]


def write(folder: Path, kind: str) -> None:
    """Write folder/reference.npz for the model of this kind unless it is newer than the model file."""
    path, model = folder / "reference.npz", folder / "1" / "model.onnx"
    if path.is_file() and path.stat().st_mtime >= model.stat().st_mtime:
        return
    if onnxruntime.__version__ != ONNXRUNTIME:
        raise OSError(f"the reference is onnxruntime {ONNXRUNTIME}, found {onnxruntime.__version__}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    arrays: Case = {}
    for i, case in enumerate(cases(kind)):
        answers = session.run(names, case)
        arrays |= {f"{i}.in.{name}": array for name, array in case.items()}
        arrays |= {f"{i}.out.{name}": array for name, array in zip(names, answers)}
    aside = folder / ".reference.npz"
    with aside.open("wb") as file:
        np.savez_compressed(file, **arrays)
    aside.rename(path)


def read(path: Path) -> list[tuple[Case, Case]]:
    """The (inputs, outputs) of every case in a reference.npz."""
    found: dict[int, tuple[Case, Case]] = {}
    with np.load(path) as file:
        for key in file.files:
            number, side, name = key.split(".", 2)
            found.setdefault(int(number), ({}, {}))[side == "out"][name] = file[key]
    return [found[i] for i in sorted(found)]


def cases(kind: str) -> Iterator[Case]:
    """The inputs for one kind of model; a model of the light zoo when the kind has no entry of its own."""
    generator = np.random.default_rng(sum(kind.encode()))
    yield from CASES.get(kind, _imagenet(kind))(generator)


def _photo(generator: np.random.Generator, height: int, width: int) -> np.ndarray:
    """f32[H,W,3] in 0..255: smooth colour with shapes and grain, closer to a photograph than noise is."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    phases, rates = generator.uniform(0, 6, 3), generator.uniform(2, 14, 3)
    image = np.stack([np.sin(rate * (x + y * k) + phase) for k, (rate, phase) in enumerate(zip(rates, phases))], -1)
    image = 127 + 90 * image
    for _ in range(6):
        top, left = generator.integers(0, height - 4), generator.integers(0, width - 4)
        image[top : top + height // 4, left : left + width // 3] = generator.uniform(0, 255, 3)
    return np.clip(image + generator.normal(0, 8, image.shape), 0, 255).astype(np.float32)


def _line_of_text(generator: np.random.Generator, height: int, width: int) -> np.ndarray:
    """f32[H,W,3]: dark strokes on light paper."""
    image = np.full((height, width, 3), 235.0, np.float32)
    left = 4
    while left < width - 8:
        stroke = int(generator.integers(2, 5))
        top = int(generator.integers(height // 6, height // 3))
        bottom = int(generator.integers(height // 2, height - 3))
        image[top:bottom, left : left + stroke] = 25.0
        if generator.random() < 0.5:
            row = int(generator.integers(top, bottom))
            image[row : row + 3, left : left + 9] = 25.0
        left += int(generator.integers(6, 14))
    return image + generator.normal(0, 4, image.shape).astype(np.float32)


def _chw(images: list[np.ndarray]) -> np.ndarray:
    """NCHW scaled to -1..1, as the OCR models want it."""
    return np.ascontiguousarray((np.stack(images) / 127.5 - 1.0).transpose(0, 3, 1, 2), np.float32)


def _magika(generator: np.random.Generator) -> Iterator[Case]:
    """The first and the last 1,024 bytes of a file, padded with 256: a script, a table, an image header, noise."""
    files = [
        Path(__file__).read_bytes().strip(),
        "\n".join(f"{i},{i * i},name{i}" for i in range(400)).encode(),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + generator.bytes(3000),
        b'#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
        b"{" + b",".join(b'"k%d": [%d, null, true]' % (i, i) for i in range(200)) + b"}",
    ]
    rows = []
    for content in files:
        head, tail = content[:1024], content[-1024:]
        row = np.full(2048, 256, np.int32)
        row[: len(head)] = np.frombuffer(head, np.uint8)
        row[2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
        rows.append(row)
    for count in (1, 2, 5):
        yield {"bytes": np.stack(rows[-count:])}


def _silero(window: int, context: int, rate: int | None, steps: int) -> Callable[[np.random.Generator], Iterator[Case]]:
    def build(generator: np.random.Generator) -> Iterator[Case]:
        for step in range(steps):
            time = np.arange(window + context) / (rate or 16000) + step
            voice = 0.3 * np.sin(2 * np.pi * 140 * time) * (1 + 0.5 * np.sin(2 * np.pi * 4 * time))
            chunk = (voice + generator.normal(0, 0.01, time.shape)).astype(np.float32)[None]
            state = (0.2 * step * generator.standard_normal((2, 1, 128))).astype(np.float32)
            case = {"input": chunk, "state": state}
            yield case if rate is None else {**case, "sr": np.array(rate, np.int64)}

    return build


def _silero_both(generator: np.random.Generator) -> Iterator[Case]:
    yield from _silero(512, 64, 16000, 3)(generator)
    yield from _silero(256, 32, 8000, 2)(generator)


def _ocr_det(generator: np.random.Generator) -> Iterator[Case]:
    for count, height, width in ((1, 160, 320), (1, 320, 320), (2, 96, 224)):
        pages = [
            np.concatenate([_line_of_text(generator, 32, width) for _ in range(height // 32)]) for _ in range(count)
        ]
        yield {"x": _chw(pages)}


def _ocr_lines(height: int, shapes: list[tuple[int, int]]) -> Callable[[np.random.Generator], Iterator[Case]]:
    def build(generator: np.random.Generator) -> Iterator[Case]:
        for count, width in shapes:
            yield {"x": _chw([_line_of_text(generator, height, width) for _ in range(count)])}

    return build


def _minilm(generator: np.random.Generator) -> Iterator[Case]:
    """Token ids of an uncased BERT vocabulary: [CLS] words [SEP], shorter rows padded and masked."""
    for lengths in ([9], [24], [16, 7, 12], [100]):
        longest = max(lengths)
        ids, mask = np.zeros((len(lengths), longest), np.int64), np.zeros((len(lengths), longest), np.int64)
        for row, length in enumerate(lengths):
            ids[row, :length] = [101, *generator.integers(1996, 20000, length - 2), 102]
            mask[row, :length] = 1
        yield {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _faces(name: str, sizes: list[tuple[int, int, int]]) -> Callable[[np.random.Generator], Iterator[Case]]:
    def build(generator: np.random.Generator) -> Iterator[Case]:
        for count, height, width in sizes:
            photos = np.stack([_photo(generator, height, width) for _ in range(count)])
            yield {name: ((photos - 127.5) * 0.0078125).astype(np.float32)}

    return build


def _imagenet(kind: str) -> Callable[[np.random.Generator], Iterator[Case]]:
    name = "gpu_0/data_0" if kind in ("resnet50", "shufflenet", "zfnet512") else "data_0"
    mean, deviation = np.array([123.7, 116.3, 103.5]), np.array([58.4, 57.1, 57.4])

    def build(generator: np.random.Generator) -> Iterator[Case]:
        for _ in range(3):
            photo = (_photo(generator, 224, 224) - mean) / deviation
            yield {name: np.ascontiguousarray(photo.transpose(2, 0, 1)[None], np.float32)}

    return build


CASES: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "magika": _magika,
    "silero_vad": _silero_both,
    "silero_vad_op15": _silero(512, 64, 16000, 3),
    "silero_vad_ifless": _silero_both,
    "rapidocr_det": _ocr_det,
    "rapidocr_rec": _ocr_lines(48, [(1, 320), (3, 160), (1, 488)]),
    "rapidocr_cls": _ocr_lines(48, [(1, 192), (4, 192)]),
    "minilm_int8": _minilm,
    "mtcnn_pnet": _faces("input_1", [(1, 60, 80), (1, 121, 97), (2, 48, 48)]),
    "mtcnn_rnet": _faces("input_2", [(1, 24, 24), (9, 24, 24)]),
    "mtcnn_onet": _faces("input_3", [(1, 48, 48), (5, 48, 48)]),
}
