"""Splits text into tokens of a vocabulary that lies next to this file."""

import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.length = int(config["parameters"]["length"]["string_value"])
        path = os.path.join(args["model_repository"], args["model_version"], "vocabulary.json")
        with open(path, encoding="utf-8") as file:
            self.vocabulary = json.load(file)

    def encode(self, text):
        ids = [self.vocabulary.get(word, 1) for word in text.lower().split()][: self.length]
        return ids + [0] * (self.length - len(ids)), [1] * len(ids) + [0] * (self.length - len(ids))

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            encoded = [self.encode(b" ".join(row).decode("utf-8")) for row in texts]
            ids = np.array([ids for ids, _ in encoded], dtype=np.int64)
            mask = np.array([mask for _, mask in encoded], dtype=np.int64)
            responses.append(
                pb_utils.InferenceResponse(
                    [pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", mask)]
                )
            )
        return responses
