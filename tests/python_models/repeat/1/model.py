"""Gives one response for each element of its input, from a thread of its own."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if len(values) and values[0] == -1:
                raise RuntimeError("planted failure")
            sender = request.get_response_sender()
            threading.Thread(target=self.respond, args=(sender, values)).start()

    def respond(self, sender, values):
        if len(values) and values[0] == -2:
            error = pb_utils.TritonError("planted refusal", pb_utils.TritonError.INVALID_ARG)
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
            return
        for index, value in enumerate(values):
            tensors = [
                pb_utils.Tensor("OUT", np.array([value], dtype=np.int32)),
                pb_utils.Tensor("INDEX", np.array([index], dtype=np.uint32)),
            ]
            last = value == 99
            sender.send(pb_utils.InferenceResponse(tensors), flags=FINAL if last else 0)
            if last:
                return
        sender.send(flags=FINAL)
