"""Logs its input in every way, and counts requests in a metric."""

import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("logger_requests", "Requests of the model", pb_utils.MetricFamily.COUNTER)
        self.metric = family.Metric(labels={"model": args["model_name"]})

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].decode()
            pb_utils.Logger.log_info(f"info {text}")
            pb_utils.Logger.log_warn(f"warning {text}")
            pb_utils.Logger.log_error(f"error {text}")
            pb_utils.Logger.log(f"plain {text}")
            print(f"printed {text}", flush=True)
            print(f"standard error {text}", file=sys.stderr, flush=True)
            self.metric.increment(1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([True]))]))
        return responses
