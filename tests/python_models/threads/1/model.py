"""Calls other models from threads of its own: two models eight times at once, and one that does not exist."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor(8)

    def finalize(self):
        self.pool.shutdown()

    def request(self, left, number):
        right = np.full((1, 4), number, np.float32)
        return pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", left), pb_utils.Tensor("INPUT1", right)],
        )

    def check_large(self, number):
        """Tensors that are too long for a message."""
        array = np.full((1, 50_000), number, np.float32)
        tensors = [pb_utils.Tensor("INPUT0", array)]
        request = pb_utils.InferenceRequest(model_name="identity", requested_output_names=["OUTPUT0"], inputs=tensors)
        output = pb_utils.get_output_tensor_by_name(request.exec(), "OUTPUT0").as_numpy()
        if not np.array_equal(output, array):
            raise ValueError(f"identity of {number} is {output}")

    def call(self, left, number):
        self.check_large(number)
        request = self.request(left, number)
        # With an event loop of the thread's own, too.
        response = asyncio.run(self.wait(request)) if number % 2 else request.exec()
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()

    async def wait(self, request):
        return await request.async_exec()

    def absent(self):
        response = pb_utils.InferenceRequest(model_name="absent", requested_output_names=["X"], inputs=[]).exec()
        return "refused" if response.has_error() else "answered"

    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "A").as_numpy().reshape(1, 4)
            refused = self.pool.submit(self.absent)
            sums = list(self.pool.map(lambda number: self.call(array, number), range(8)))
            tensors = [
                pb_utils.Tensor("SUMS", np.concatenate(sums)),
                pb_utils.Tensor("ERROR", np.array([refused.result().encode()], dtype=np.object_)),
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
