"""Normalizes text and counts its words."""

import re
import unicodedata

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.spaces = re.compile(r"\s+")

    def clean(self, text):
        return self.spaces.sub(" ", unicodedata.normalize("NFKC", text)).strip().lower()

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            cleaned = [self.clean(text.decode("utf-8")) for text in texts.reshape(-1)]
            clean = np.array([text.encode("utf-8") for text in cleaned], dtype=np.object_).reshape(texts.shape)
            words = np.array([len(text.split()) for text in cleaned], dtype=np.int32).reshape(texts.shape)
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("CLEAN", clean), pb_utils.Tensor("WORDS", words)])
            )
        return responses
