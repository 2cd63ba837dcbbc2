"""Finds the boxes in the map that the detection model gives, and takes each out of the image."""

import numpy as np
import package
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.ocr = package.load()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        pixels, found, frame = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("pixels", "found", "frame")
        )
        boxes, crops = package.crop(self.ocr, pixels[0], found, frame[0])
        # Crops have different sizes, so they travel as one row of bytes.
        flat = [crop.reshape(-1) for crop in crops]
        tensors = {
            "boxes": boxes,
            "x": package.classify_inputs(self.ocr, crops),
            "sizes": np.array([crop.shape[:2] for crop in crops], np.int32).reshape(-1, 2),
            "crops": np.concatenate(flat) if flat else np.zeros(0, np.uint8),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
