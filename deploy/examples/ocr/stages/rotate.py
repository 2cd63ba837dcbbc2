"""Rotates lines that are upside down, and resizes and groups them for the recognition model."""

import numpy as np
import package
import triton_python_backend_utils as pb_utils
from groups import GROUPS


class TritonPythonModel:
    def initialize(self, args):
        self.ocr = package.load()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        crops, sizes, scores = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("crops", "sizes", "scores")
        )
        ends = np.cumsum(3 * sizes.prod(axis=1), dtype=np.int64)
        parts = np.split(crops, ends[:-1]) if len(sizes) else []
        images = [part.reshape(height, width, 3) for part, (height, width) in zip(parts, sizes)]
        lines = package.rotate(self.ocr, images, scores)
        order, groups = package.group_lines(self.ocr, lines)
        groups += [np.zeros((0, 3, 48, 320), np.float32)] * (GROUPS - len(groups))
        tensors = [pb_utils.Tensor("order", order.astype(np.int32))]
        tensors += [pb_utils.Tensor(f"lines{number}", group) for number, group in enumerate(groups, 1)]
        return pb_utils.InferenceResponse(tensors)
