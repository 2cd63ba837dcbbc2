"""Reads the texts and their scores in what the recognition model gives."""

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
        names = ["boxes", "order", *(f"scores{number}" for number in range(1, GROUPS + 1))]
        boxes, order, *groups = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names)
        boxes, texts, scores = package.read(self.ocr, boxes, order, groups)
        tensors = {
            "boxes": boxes,
            "texts": np.array([text.encode() for text in texts], np.object_),
            "scores": np.array(scores, np.float32),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
