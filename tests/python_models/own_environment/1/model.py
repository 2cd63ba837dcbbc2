"""Uses a module that only its own environment has. The tests make the environment."""

import os
import sys

import numpy as np
import only_here
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        facts = [
            only_here.WORD,
            os.path.relpath(only_here.__file__, sys.prefix),
            str(os.environ["PATH"].split(":")[0] == os.path.join(sys.prefix, "bin")),
        ]
        output = pb_utils.Tensor("OUT", np.array([fact.encode() for fact in facts], dtype=np.object_))
        return [pb_utils.InferenceResponse([output]) for _ in requests]
