"""Mean of the vectors of words, from a table that another module of this folder makes."""

import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from table import TABLE  # noqa: E402


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            ids = pb_utils.get_input_tensor_by_name(request, "IDS").as_numpy()
            if ids.min(initial=0) < 0 or ids.max(initial=0) >= len(TABLE):
                error = pb_utils.TritonError(f"ids: expected 0 to {len(TABLE) - 1}", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=error))
                continue
            vectors = TABLE[ids].mean(axis=1, dtype=np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("VECTOR", vectors)]))
        return responses
