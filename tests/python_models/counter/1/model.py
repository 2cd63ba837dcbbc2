"""Keeps a sum over requests, and prints it when it is unloaded."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.total = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            add = pb_utils.get_input_tensor_by_name(request, "ADD").as_numpy()
            self.total = self.total + add
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TOTAL", self.total)]))
        return responses

    def finalize(self):
        print(f"finalized at {int(self.total[0])}", flush=True)
