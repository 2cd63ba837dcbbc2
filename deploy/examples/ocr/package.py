"""What the stages take from the package `rapidocr_onnxruntime`: its code for images, boxes and texts, without its sessions.

`build.py` copies this file next to each `model.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
from groups import GROUP_LINES, GROUPS

# What the recognition model can read.
CHARACTERS = Path(__file__).with_name("characters.txt")


class ElsewhereSession:
    """Stands for a session of the package whose model runs elsewhere."""

    def __init__(self, config: dict) -> None:
        pass

    def have_key(self) -> bool:
        return True

    def get_character_list(self) -> list[str]:
        return CHARACTERS.read_bytes().decode().splitlines()


def load():
    """The package's `RapidOCR` with its settings and without models."""
    import rapidocr_onnxruntime.main as package

    # The server pins each worker to the core of its lane.
    cv2.setNumThreads(1)
    with ExitStack() as changes:
        for part in (package.TextDetector, package.TextClassifier, package.TextRecognizer):
            changes.enter_context(mock.patch(f"{part.__module__}.OrtInferSession", ElsewhereSession))
        return package.RapidOCR()


def prepare(ocr, content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The decoded image, how it was scaled and padded, and the input of the detection model."""
    raw = ocr.load_img(content)
    image, ratio_h, ratio_w = ocr.preprocess(raw)
    image, record = ocr.maybe_add_letterbox(image, {})
    padding = record["padding_1"]
    frame = np.array([*raw.shape[:2], ratio_h, ratio_w, padding["top"], padding["left"]], np.float64)
    return image, frame, ocr.text_det.get_preprocess(max(image.shape[:2]))(image)


def crop(ocr, image: np.ndarray, found: np.ndarray, frame: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Boxes in the client's image, in reading order, and what is in them."""
    boxes, _ = ocr.text_det.postprocess_op(found, image.shape[:2])
    boxes = ocr.text_det.filter_tag_det_res(boxes, image.shape[:2])
    if len(boxes) == 0:
        return np.zeros((0, 4, 2), np.float32), []
    boxes = ocr.sorted_boxes(boxes)
    height, width, ratio_h, ratio_w, top, left = frame.tolist()
    record = {"preprocess": {"ratio_h": ratio_h, "ratio_w": ratio_w}, "padding_1": {"top": top, "left": left}}
    return ocr._get_origin_points(boxes, record, height, width), ocr.get_crop_img_list(image, boxes)


def classify_inputs(ocr, crops: list[np.ndarray]) -> np.ndarray:
    """Input of the model that finds the lines that are upside down."""
    rows = [ocr.text_cls.resize_norm_img(one) for one in crops]
    return np.stack(rows).astype(np.float32) if rows else np.zeros((0, *ocr.text_cls.cls_image_shape), np.float32)


def rotate(ocr, crops: list[np.ndarray], scores: np.ndarray) -> list[np.ndarray]:
    """The lines as they are read."""
    found = ocr.text_cls.postprocess_op(scores) if crops else []
    upside_down = ["180" in label and score > ocr.text_cls.cls_thresh for label, score in found]
    return [cv2.rotate(one, cv2.ROTATE_180) if flip else one for one, flip in zip(crops, upside_down)]


def group_lines(ocr, lines: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The order of the lines by width, and the input of the recognition model for each group of them."""
    ratios = np.array([line.shape[1] / float(line.shape[0]) for line in lines])
    order = np.argsort(ratios)
    size = max(GROUP_LINES, -(-len(lines) // GROUPS))
    _, height, width = ocr.text_rec.rec_image_shape
    groups = []
    for first in range(0, len(lines), size):
        members = order[first : first + size]
        ratio = max(width / height, *ratios[members])
        groups.append(np.stack([ocr.text_rec.resize_norm_img(lines[one], ratio) for one in members]))
    return order, groups


def read(ocr, boxes: np.ndarray, order: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, list[str], list[float]]:
    """The boxes, texts and scores of the lines that are certain enough."""
    found = [one for group in groups if len(group) for one in ocr.text_rec.postprocess_op(group)]
    lines = [found[at] for at in np.argsort(order)]
    kept = [at for at, (_, score) in enumerate(lines) if float(score) >= ocr.text_score]
    return boxes[kept], [lines[at][0] for at in kept], [float(lines[at][1]) for at in kept]
