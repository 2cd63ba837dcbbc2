"""Answers each request as its text asks: with an error of a code, an exception, or the text."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()
        word = text.reshape(-1)[0].decode()
        if word == "raise":
            raise ValueError("planted failure")
        if word == "exception":
            raise pb_utils.TritonModelException("planted exception")
        if word == "plain":
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError("a plain error"))
        if word == "nothing":
            return pb_utils.InferenceResponse(output_tensors=[])
        if word == "other name":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OTHER", np.array([[1]], dtype=np.int32))])
        if word == "other type":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[1]], dtype=np.int32))])
        if word.isupper():
            error = pb_utils.TritonError(f"planted {word}", getattr(pb_utils.TritonError, word))
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])

    def execute(self, requests):
        return [self.answer(request) for request in requests]
