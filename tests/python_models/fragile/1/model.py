"""Ends its process, hangs, or tells the number of its process, as it is asked."""

import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            word = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy()[0]
            if word == b"exit":
                os._exit(7)
            if word == b"abort":
                os.abort()
            if word == b"hang":
                time.sleep(3600)
        pid = np.array([os.getpid()], dtype=np.int64)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PID", pid)]) for _ in requests]
