"""Scales images, scores their channels, and names the best one from a file of labels in the model's folder."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.labels = Path(args["model_repository"], "labels.txt").read_text(encoding="utf-8").split()

    def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy() for request in requests]
        scores = np.concatenate(images).astype(np.float32).mean(axis=(1, 2)) / 255.0
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        labels = np.array([[self.labels[best].encode()] for best in probabilities.argmax(axis=1)], dtype=np.object_)
        responses, row = [], 0
        for image in images:
            rows = slice(row, row + len(image))
            row = rows.stop
            responses.append(
                pb_utils.InferenceResponse(
                    [pb_utils.Tensor("PROBABILITIES", probabilities[rows]), pb_utils.Tensor("LABEL", labels[rows])]
                )
            )
        return responses
