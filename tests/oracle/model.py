"""Triton Python-backend model that runs onnxruntime. The oracle copies it next to every model.onnx."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": "STRING",
}


def filename(config):
    """Triton completes a name for the backend `python`: this script."""
    named = config.get("default_model_filename") or ""
    return named if named.endswith(".onnx") else "model.onnx"


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        """As Triton's ONNX Runtime backend: tensors that the file leaves out come from the graph. A graph whose tensors all
        have a free first dimension gets a batch of 4."""
        written = config.as_dict()
        if written["input"] and written["output"]:
            return config
        # The first argument of the process is the model's file.
        command = Path("/proc/self/cmdline").read_bytes().split(b"\0")
        path = Path(command[1].decode()).with_name(filename(written))
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        tensors = [*session.get_inputs(), *session.get_outputs()]
        batched = all(tensor.shape and not isinstance(tensor.shape[0], int) for tensor in tensors)
        batch = written["max_batch_size"] or (4 if batched else 0)
        config.set_max_batch_size(batch)
        if batch > 1 and not written["max_batch_size"]:
            config.set_dynamic_batching()
        for given, add, values in (
            (written["input"], config.add_input, session.get_inputs()),
            (written["output"], config.add_output, session.get_outputs()),
        ):
            for value in values if not given else []:
                dims = [dim if isinstance(dim, int) else -1 for dim in value.shape[1 if batch else 0 :]]
                element = TYPES[value.type.removeprefix("tensor(").removesuffix(")")]
                add({"name": value.name, "data_type": f"TYPE_{element}", "dims": dims})
        return config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"]) / args["model_version"] / filename(config)
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
