"""Decodes an image, and resizes and normalizes it for the detection model."""

import numpy as np
import package
import triton_python_backend_utils as pb_utils
from PIL import UnidentifiedImageError


class TritonPythonModel:
    def initialize(self, args):
        self.ocr = package.load()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        content = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        try:
            image, frame, x = package.prepare(self.ocr, content.tobytes())
        except Exception as error:
            reason = "the format is unknown" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__
            message = f"input `image`: expected a file such as JPEG or PNG: {reason}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        tensors = {"pixels": image[np.newaxis], "frame": frame[np.newaxis], "x": x}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
