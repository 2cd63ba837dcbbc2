"""Exchanges tensors with numpy through DLPack, in both directions."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(request)) for request in requests]

    def outputs(self, request):
        whole, half, flag, text = (
            pb_utils.get_input_tensor_by_name(request, name) for name in ("INT", "HALF", "BOOL", "TEXT")
        )
        facts = [type(whole.to_dlpack()).__name__, str(tuple(int(part) for part in whole.__dlpack_device__()))]
        try:
            text.to_dlpack()
        except Exception as error:
            facts.append(f"{type(error).__name__}: {error}")
        try:
            pb_utils.Tensor.from_dlpack("X", np.array(["a"], dtype=np.object_))
        except Exception as error:
            facts.append(type(error).__name__)
        whole_array, half_array, flags = (np.from_dlpack(tensor) for tensor in (whole, half, flag))
        if text.as_numpy()[0] == b"arrays":
            # Triton's process crashes when it takes these.
            transposed = pb_utils.Tensor.from_dlpack("TRANSPOSED", (whole_array * 1).T)
            twice = pb_utils.Tensor.from_dlpack("TWICE", half_array * 2)
        else:
            transposed = pb_utils.Tensor("TRANSPOSED", np.ascontiguousarray(whole_array.T))
            twice = pb_utils.Tensor("TWICE", half_array * 2)
        return [
            transposed,
            pb_utils.Tensor.from_dlpack("CAPSULE", whole.to_dlpack()),
            twice,
            pb_utils.Tensor("SAME", flags.copy()),
            pb_utils.Tensor("FACTS", np.array([fact.encode() for fact in facts], dtype=np.object_)),
        ]
