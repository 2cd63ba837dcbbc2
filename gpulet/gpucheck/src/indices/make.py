#!/usr/bin/env python3
"""Makes the models of the check `faults.index_*`: each looks up entry `x` of a table with 16 numbers, 1 to 16, or writes to
it. Needs the package onnx.

    python3 make.py
"""

from pathlib import Path

import numpy
from onnx import TensorProto, checker, helper, numpy_helper, save

TABLE = numpy.arange(1, 17, dtype=numpy.float32)


def table(shape):
    return numpy_helper.from_array(TABLE.reshape(shape), "t")


def model(name, nodes, initializers, y):
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["batch", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, y)
    graph = helper.make_graph(nodes, name, [x], [y], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tessera")
    checker.check_model(made, full_check=True)
    save(made, Path(__file__).with_name(f"{name}.onnx"))


def main():
    model("gather", [helper.make_node("Gather", ["t", "x"], ["y"])], [table((16,))], ["batch", 1])
    elements = helper.make_node("GatherElements", ["t", "x"], ["y"], axis=0)
    model("gather_elements", [elements], [table((16, 1))], ["batch", 1])
    model("gather_nd", [helper.make_node("GatherND", ["t", "x"], ["y"])], [table((16,))], ["batch"])
    # Writes -1 at the index, and returns the table.
    one = numpy_helper.from_array(numpy.array([[-1]], numpy.float32), "u")
    scatter = helper.make_node("ScatterElements", ["t", "x", "u"], ["y"], axis=0)
    model("scatter_elements", [scatter], [table((16, 1)), one], [16, 1])
    one = numpy_helper.from_array(numpy.array([-1], numpy.float32), "u")
    model("scatter_nd", [helper.make_node("ScatterND", ["t", "x", "u"], ["y"])], [table((16,)), one], [16])


if __name__ == "__main__":
    main()
