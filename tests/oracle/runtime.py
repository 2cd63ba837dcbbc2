"""MLServer runtime that runs onnxruntime. It is copied next to every model of an MLServer repository.

It follows MLServer's documentation of custom runtimes: decode with the numpy codec, run, encode with the numpy codec.
"""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        path = self.settings.parameters.uri
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.wanted = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        answers = self.session.run(self.wanted, feed)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(self.wanted, answers)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
