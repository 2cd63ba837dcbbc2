"""Tells what it knows of a request, and the arguments of `initialize`."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = {name: args[name] for name in sorted(args)}

    def execute(self, requests):
        responses = []
        for request in requests:
            facts = {
                "id": request.request_id(),
                "correlation": request.correlation_id(),
                "outputs": sorted(request.requested_output_names()),
                "parameters": json.loads(request.parameters()),
                "timeout": request.timeout(),
                "flags": request.flags(),
                "cancelled": request.is_cancelled(),
                "shapes": [[tensor.name(), tensor.shape() if callable(tensor.shape) else None] for tensor in request.inputs()],
                "cpu": [tensor.is_cpu() for tensor in request.inputs()],
            }
            texts = {"FACTS": json.dumps(facts, sort_keys=True), "CONFIG": json.dumps(self.args)}
            tensors = [pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_)) for name, text in texts.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
