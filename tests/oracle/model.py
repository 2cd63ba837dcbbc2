"""Triton Python-backend model that runs onnxruntime. The oracle copies it next to every model.onnx."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.joins = config["max_batch_size"] > 0
        self.strings = {value.name for value in self.session.get_inputs() if value.type == "tensor(string)"}

    def execute(self, requests):
        if self.joins and len(requests) > 1:
            return self._together(requests)
        return [self._alone(request) for request in requests]

    def _feed(self, request):
        feed = {}
        for name in self.inputs:
            array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            if name in self.strings:
                array = np.vectorize(lambda b: b.decode("utf-8"), otypes=[object])(array)
            feed[name] = array
        return feed

    def _response(self, request, arrays):
        wanted = set(request.requested_output_names())
        tensors = []
        for name, array in arrays.items():
            if name not in wanted:
                continue
            if array.dtype.kind in "OU":
                encoded = [str(item).encode("utf-8") for item in array.ravel()]
                array = np.array(encoded, dtype=object).reshape(array.shape)
            tensors.append(pb_utils.Tensor(name, array))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _alone(self, request):
        try:
            answers = self.session.run(self.outputs, self._feed(request))
        except Exception as error:  # the engine's own words become the answer, as a native backend's would
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error)))
        return self._response(request, dict(zip(self.outputs, answers)))

    def _together(self, requests):
        feeds = [self._feed(request) for request in requests]
        rows = [len(next(iter(feed.values()))) for feed in feeds]
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self.inputs}
        answers = self.session.run(self.outputs, joined)
        ends = np.cumsum(rows)[:-1]
        split = {name: np.split(array, ends) for name, array in zip(self.outputs, answers)}
        return [
            self._response(request, {name: parts[i] for name, parts in split.items()})
            for i, request in enumerate(requests)
        ]
