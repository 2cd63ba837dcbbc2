"""`async def execute`: calls `add_sub` several times at once, and once after them."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def add(self, left, right):
        request = pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", left), pb_utils.Tensor("INPUT1", right)],
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()

    async def respond(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "A").as_numpy().reshape(1, 4)
        await asyncio.sleep(0)
        sums = await asyncio.gather(*(self.add(array, np.full((1, 4), number, np.float32)) for number in range(5)))
        sums.append(await self.add(sums[0], sums[1]))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUMS", np.concatenate(sums))])

    async def execute(self, requests):
        return await asyncio.gather(*(self.respond(request) for request in requests))
