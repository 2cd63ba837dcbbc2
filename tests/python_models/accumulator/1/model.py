"""Sums the inputs of each sequence, and says what it was told about the request."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def given(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

        controls = {name: given(name) for name in ("START", "END", "READY", "ID")}
        sequence = request.correlation_id()
        if controls["START"].any():
            self.sums[sequence] = 0.0
        total = self.sums.get(sequence, -1.0) + float(given("IN")[0, 0])
        self.sums[sequence] = total
        if controls["END"].any():
            del self.sums[sequence]
        told = {name: [str(value.dtype), value.tolist()] for name, value in controls.items()}
        told |= {"correlation_id": sequence, "flags": request.flags()}
        text = np.array([[json.dumps(told).encode()]], dtype=np.object_)
        tensors = [
            pb_utils.Tensor("SUM", np.array([[total]], dtype=np.float32)),
            pb_utils.Tensor("TOLD", text),
        ]
        return pb_utils.InferenceResponse(tensors)
