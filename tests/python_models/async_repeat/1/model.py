"""`async def execute` of a decoupled model: twice each element, which `add_sub` computes."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    async def twice(self, value):
        array = np.full((1, 4), value, np.float32)
        request = pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", array), pb_utils.Tensor("INPUT1", array)],
        )
        response = await request.async_exec()
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()[0, :1].astype(np.int32)

    async def respond(self, request):
        sender = request.get_response_sender()
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        for index, value in enumerate(values):
            if value == -1:
                raise RuntimeError("planted failure")
            tensors = [
                pb_utils.Tensor("OUT", await self.twice(value)),
                pb_utils.Tensor("INDEX", np.array([index], dtype=np.uint32)),
            ]
            sender.send(pb_utils.InferenceResponse(tensors))
        sender.send(flags=FINAL)

    async def execute(self, requests):
        await asyncio.gather(*(self.respond(request) for request in requests))
