"""Calls another model of the server: (a + b) + (a - b)."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def call(self, left, right):
        request = pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["OUTPUT0", "OUTPUT1"],
            inputs=[pb_utils.Tensor("INPUT0", left), pb_utils.Tensor("INPUT1", right)],
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in ("OUTPUT0", "OUTPUT1")]

    def execute(self, requests):
        responses = []
        for request in requests:
            a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(1, 4) for name in "AB")
            sums, differences = self.call(a, b)
            twice, _ = self.call(sums, differences)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TWICE_A", twice.reshape(4))]))
        return responses
