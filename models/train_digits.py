#!/usr/bin/env python3
"""Train the digit classifier that Tessera serves when it is started without arguments.

A small perceptron on scikit-learn's 8x8 hand-written digits. Seeded and free of clocks, so that the same
packages give the same file. Writes, under --out (default: bundled/digits next to this script):

    1/model.onnx   image f32[N,64] (grey values 0..16) -> probabilities f32[N,10], digit i64[N]
    config.pbtxt   the label file of `probabilities`, for the classification extension
    labels.txt     one label a line
    sample.json    an inference request with an image of the test set that the model never saw, ready to post

Packages (exact versions matter for the bytes, not for the result): scikit-learn 1.7.2, onnx 1.23.2,
numpy 2.4.6, onnxruntime 1.31.0.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

SEED = 20240501
GREY_MAX = 16.0
ACCURACY_MIN = 0.97
SIZE_MAX = 300_000
LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

CONFIG_PBTXT = """\
# Shapes, datatypes and the other tensors come from the model file; only the labels need saying.
name: "digits"
max_batch_size: 64
output [ { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" } ]
"""


def shifted(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images and their copies moved by one pixel in the four directions."""
    grids = images.reshape(-1, 8, 8)
    moved = [grids]
    for axis in (1, 2):
        for step in (-1, 1):
            copy = np.roll(grids, step, axis=axis)
            edge = [slice(None)] * 3
            edge[axis] = 0 if step == 1 else 7
            copy[tuple(edge)] = 0.0
            moved.append(copy)
    return np.concatenate(moved).reshape(-1, 64), np.tile(labels, len(moved))


def train(images: np.ndarray, labels: np.ndarray) -> MLPClassifier:
    classifier = MLPClassifier(hidden_layer_sizes=(160, 80), alpha=1e-3, batch_size=128, max_iter=60, random_state=SEED)
    with warnings.catch_warnings():
        # A fixed number of passes is the stopping rule here; the accuracy check below decides.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier.fit(images, labels)


def to_onnx(classifier: MLPClassifier) -> onnx.ModelProto:
    nodes = [helper.make_node("Mul", ["image", "grey_scale"], ["hidden_0"])]
    weights = [numpy_helper.from_array(np.float32(1.0 / GREY_MAX), "grey_scale")]
    layers = len(classifier.coefs_)
    for i, (matrix, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_)):
        weights.append(numpy_helper.from_array(matrix.astype(np.float32), f"weight_{i}"))
        weights.append(numpy_helper.from_array(bias.astype(np.float32), f"bias_{i}"))
        linear = "logits" if i == layers - 1 else f"linear_{i}"
        nodes.append(helper.make_node("Gemm", [f"hidden_{i}", f"weight_{i}", f"bias_{i}"], [linear]))
        if i < layers - 1:
            nodes.append(helper.make_node("Relu", [linear], [f"hidden_{i + 1}"]))
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1))
    nodes.append(helper.make_node("ArgMax", ["logits"], ["digit"], axis=1, keepdims=0))
    graph = helper.make_graph(
        nodes,
        "digits",
        inputs=[helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 64])],
        outputs=[
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10]),
            helper.make_tensor_value_info("digit", TensorProto.INT64, ["N"]),
        ],
        initializer=weights,
        doc_string="Hand-written digits, 8x8 grey values 0..16. Trained by models/train_digits.py.",
    )
    model = helper.make_model(graph, producer_name="tessera", opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def sample_request(image: np.ndarray) -> dict[str, object]:
    return {
        "id": "digit",
        "inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [int(grey) for grey in image]}],
        "outputs": [{"name": "digit"}, {"name": "probabilities"}],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "bundled" / "digits")
    arguments = parser.parse_args()

    data = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        data.data, data.target, test_size=0.25, random_state=SEED, stratify=data.target
    )
    classifier = train(*shifted(train_images / GREY_MAX, train_labels))
    model = to_onnx(classifier).SerializeToString(deterministic=True)

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    probabilities, digits = session.run(["probabilities", "digit"], {"image": test_images.astype(np.float32)})
    accuracy = float((digits == test_labels).mean())
    print(f"accuracy on {len(test_labels)} images held back: {accuracy:.2%}; model {len(model)} bytes")
    if accuracy < ACCURACY_MIN or len(model) > SIZE_MAX:
        print(f"error: want at least {ACCURACY_MIN:.0%} and at most {SIZE_MAX} bytes", file=sys.stderr)
        return 1

    sevens = np.flatnonzero((test_labels == 7) & (digits == 7))
    chosen = int(sevens[np.argmax(probabilities[sevens, 7])])
    (arguments.out / "1").mkdir(parents=True, exist_ok=True)
    (arguments.out / "1" / "model.onnx").write_bytes(model)
    (arguments.out / "config.pbtxt").write_text(CONFIG_PBTXT)
    (arguments.out / "labels.txt").write_text("\n".join(LABELS) + "\n")
    (arguments.out / "sample.json").write_text(json.dumps(sample_request(test_images[chosen])) + "\n")
    print(f"sample.json holds a 7 of the test set; the model gives it {probabilities[chosen, 7]:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
