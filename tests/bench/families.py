#!/usr/bin/env python3
"""A family of classifiers of handwritten digits under overload, next to each of its variants alone.

    tests/run families [--rounds N] [--seconds S] [--overload FACTOR] [--render]      about 8 minutes

Three perceptrons are trained on 1,437 of the 1,797 digits of scikit-learn; a fourth model finds the nearest of these digits, their shifted copies and
brighter and darker ones, which is slow and right more often. `tessera variants` makes 8-bit ones of two of them and measures all on the other 360. Each variant alone, and the family, then get the same requests (Poisson arrivals, open loop): as many a second as the
capacity of the largest variant times a factor. Client and server share the cores. `--render` prints the tables of the last run again.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import onnx
from fixtures.client import get
from fixtures.tessera import Tessera
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
import zoo  # noqa: E402

RESULTS = Path(__file__).with_name("results")
PACKAGE = "scikit-learn==1.7.2 --hash=sha256:89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
# Neurons of the hidden layers, epochs, and rate of learning.
SIZES = {
    "digits-xs": ([6], 60, 1e-3),
    "digits-s": ([24], 40, 1e-3),
    "digits-m": ([1024], 12, 1e-3),
}
QUANTIZED = ["digits-m", "digits-nearest"]
BATCH = 32
HELD_OUT = 360
OBJECTIVE = "200ms"
LARGEST = "digits-nearest"
# Copies of the digits: shifts by rows and columns, and brightness.
SHIFTS, BRIGHTNESS = [-1, 0, 1], [0.7, 0.85, 1.0, 1.15, 1.3]
# Of a request. With one, HTTP and not the models would decide the capacity.
ROWS = 32


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 1, and classes, in an order that a seed decides."""
    with tempfile.TemporaryDirectory() as fetched:
        packed = zoo.read_member(zoo.download(PACKAGE, Path(fetched)), MEMBER)
    with gzip.open(io.BytesIO(packed), "rt") as text:
        table = np.array(list(csv.reader(text)), np.float32)
    table = table[np.random.default_rng(7).permutation(len(table))]
    return (table[:, :-1] / 16).astype(np.float32), table[:, -1].astype(np.int64)


def train(x: np.ndarray, labels: np.ndarray, hidden: list[int], epochs: int, rate: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights of a perceptron: Adam on the cross entropy, with small shifts of the images."""
    generator = np.random.default_rng(1)
    sizes = [x.shape[1], *hidden, 10]
    layers = [
        [generator.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32)] for a, b in zip(sizes, sizes[1:])
    ]
    moments = [[(np.zeros_like(value), np.zeros_like(value)) for value in layer] for layer in layers]
    step = 0
    for _ in range(epochs):
        order = generator.permutation(len(x))
        for start in range(0, len(x), BATCH):
            rows = order[start : start + BATCH]
            values = [x[rows] + generator.normal(0, 0.1, (len(rows), x.shape[1])).astype(np.float32)]
            for weights, bias in layers[:-1]:
                values.append(np.maximum(values[-1] @ weights + bias, 0))
            scores = values[-1] @ layers[-1][0] + layers[-1][1]
            scores = np.exp(scores - scores.max(1, keepdims=True))
            slope = scores / scores.sum(1, keepdims=True)
            slope[np.arange(len(rows)), labels[rows]] -= 1
            slope /= len(rows)
            step += 1
            for place in reversed(range(len(layers))):
                gradients = [values[place].T @ slope, slope.sum(0)]
                slope = (slope @ layers[place][0].T) * (values[place] > 0)
                for at, gradient in enumerate(gradients):
                    first, second = moments[place][at]
                    first = 0.9 * first + 0.1 * gradient
                    second = 0.999 * second + 0.001 * gradient**2
                    moments[place][at] = (first, second)
                    corrected = first / (1 - 0.9**step), second / (1 - 0.999**step)
                    layers[place][at] -= (rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)).astype(np.float32)
    return [(weights, bias) for weights, bias in layers]


def perceptron(layers: list[tuple[np.ndarray, np.ndarray]]) -> onnx.ModelProto:
    nodes, values, last = [], [], "pixels"
    for place, (weights, bias) in enumerate(layers):
        values += [numpy_helper.from_array(weights, f"w{place}"), numpy_helper.from_array(bias, f"b{place}")]
        is_last = place == len(layers) - 1
        nodes.append(helper.make_node("MatMul", [last, f"w{place}"], [f"m{place}"]))
        nodes.append(helper.make_node("Add", [f"m{place}", f"b{place}"], ["scores" if is_last else f"a{place}"]))
        if not is_last:
            nodes.append(helper.make_node("Relu", [f"a{place}"], [f"r{place}"]))
        last = f"r{place}"
    info = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])  # noqa: E731
    graph = helper.make_graph(nodes, "digits", [info("pixels", 64)], [info("scores", 10)], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def nearest(x: np.ndarray, labels: np.ndarray) -> onnx.ModelProto:
    """The score of a class is how near its nearest digit is: x v - v v / 2, which orders as the distance does."""
    images = x.reshape(-1, 8, 8)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    copies = [
        bright * padded[:, 1 + row : 9 + row, 1 + column : 9 + column].reshape(-1, 64)
        for row in SHIFTS
        for column in SHIFTS
        for bright in BRIGHTNESS
    ]
    vectors, classes = np.concatenate(copies), np.tile(labels, len(copies))
    width = np.bincount(classes).max()
    # Classes with fewer digits have the first one again.
    of_class = [np.resize(np.flatnonzero(classes == label), width) for label in range(10)]
    known = vectors[np.concatenate(of_class)].astype(np.float32)
    values = [
        numpy_helper.from_array(np.ascontiguousarray(known.T), "known"),
        numpy_helper.from_array((-(known**2).sum(1) / 2).astype(np.float32), "lengths"),
        numpy_helper.from_array(np.array([0, 10, -1], np.int64), "by_class"),
        numpy_helper.from_array(np.array([2], np.int64), "last"),
    ]
    nodes = [
        helper.make_node("MatMul", ["pixels", "known"], ["products"]),
        helper.make_node("Add", ["products", "lengths"], ["nearness"]),
        helper.make_node("Reshape", ["nearness", "by_class"], ["classes"]),
        helper.make_node("ReduceMax", ["classes", "last"], ["scores"], keepdims=0),
    ]
    info = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])  # noqa: E731
    graph = helper.make_graph(nodes, "nearest", [info("pixels", 64)], [info("scores", 10)], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model


def tessera(*options: object) -> str:
    done = subprocess.run([os.environ["TESSERA_BIN"], *map(str, options)], capture_output=True, text=True, timeout=600)
    # 3 says that the client was late. Requests count from when they were due, so the figures of the server are only worse for it.
    if done.returncode != 0 and (done.returncode, options[0]) != (3, "load"):
        sys.exit(f"tessera {options[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    if done.returncode:
        print("the client was late", file=sys.stderr)
    return done.stdout


def prepare(folder: Path) -> tuple[Path, list[dict]]:
    """A repository, and the measured qualities of its models."""
    x, labels = digits()
    repository = folder / "models"
    for name, (hidden, epochs, rate) in SIZES.items():
        print(f"training {name} ...", file=sys.stderr)
        (repository / name / "1").mkdir(parents=True)
        layers = train(x[:-HELD_OUT], labels[:-HELD_OUT], hidden, epochs, rate)
        onnx.save(perceptron(layers), repository / name / "1" / "model.onnx")
    (repository / LARGEST / "1").mkdir(parents=True)
    onnx.save(nearest(x[:-HELD_OUT], labels[:-HELD_OUT]), repository / LARGEST / "1" / "model.onnx")
    np.savez(folder / "held-out.npz", pixels=x[-HELD_OUT:], label=labels[-HELD_OUT:])
    for name in QUANTIZED:
        tessera("variants", "make", name, "--repository", repository, "--int8", "--python", sys.executable)
    names = [*SIZES, LARGEST, *(f"{name}-int8" for name in QUANTIZED)]
    measured = tessera(
        "variants", "measure", *names, "--repository", repository, "--labelled", folder / "held-out.npz", "--json"
    )
    return repository, json.loads(measured)


def config(names: list[str]) -> str:
    # Dynamic quantization scales a whole batch, so rows of different requests must not be in one.
    batches = lambda name: "" if name.endswith("-int8") else "max_batch = 32\n"  # noqa: E731
    models = "".join(f'[models.{name}]\n{batches(name)}slo = "{OBJECTIVE}"\n' for name in names)
    variants = ", ".join(f'"{name}"' for name in names)
    return f'{models}[families.digits]\nslo = "{OBJECTIVE}"\nvariants = [{variants}]\n'


def load(server: Tessera, model: str, *options: object) -> dict:
    sent = tessera("load", "-m", model, "--rows", ROWS, "--slo", OBJECTIVE, "--json", "--url", server.base_url, *options)
    return json.loads(sent)["models"][0]["figures"]


def counts(server: Tessera, names: list[str]) -> dict[str, int]:
    stats = {name: get(f"{server.base_url}/v2/models/{name}/stats") for name in names}
    return {name: one["model_stats"][0]["inference_stats"]["success"]["count"] for name, one in stats.items()}


def run(server: Tessera, model: str, rate: float, seconds: int, qualities: dict[str, float]) -> dict:
    before = counts(server, list(qualities))
    figures = load(server, model, "--rate", rate, "--duration", f"{seconds}s")
    answered = {name: count - before[name] for name, count in counts(server, list(qualities)).items()}
    total = max(sum(answered.values()), 1)
    return {
        "model": model,
        "rate": rate,
        "attainment": figures["attainment"],
        "p99_ms": figures["latency"]["p99_ms"],
        "quality": sum(qualities[name] * count for name, count in answered.items()) / total,
        "answered": answered,
    }


def best_mix(rate: float, capacity: dict[str, float], qualities: dict[str, float]) -> float:
    """The best mean quality of a fixed mix of two variants that carries the rate, by what each answers alone."""
    best = 0.0
    for one in qualities:
        for two in qualities:
            slow, fast = sorted([one, two], key=lambda name: capacity[name])
            if capacity[fast] < rate:
                continue
            share = 1.0
            if capacity[slow] < rate:
                share = (1 / rate - 1 / capacity[fast]) / (1 / capacity[slow] - 1 / capacity[fast])
            best = max(best, share * qualities[slow] + (1 - share) * qualities[fast])
    return best


def render(result: dict) -> None:
    print("| model | accuracy, % | answers/s alone | in time at the rate, % | p99, ms |")
    print("|---|---|---|---|---|")
    for name, quality in sorted(result["qualities"].items(), key=lambda one: -one[1]):
        runs = [one for one in result["runs"] if one["model"] == name]
        attained = ", ".join(f"{100 * one['attainment']:.1f}" for one in runs)
        tails = ", ".join(f"{one['p99_ms']:.0f}" for one in runs)
        print(f"| `{name}` | {100 * quality:.1f} | {result['capacity'][name]:.0f} | {attained} | {tails} |")
    for one in (one for one in result["runs"] if one["model"] == "digits"):
        mix = ", ".join(f"{name} {100 * count / max(sum(one['answered'].values()), 1):.0f} %" for name, count in one["answered"].items() if count)
        print(
            f"\nFamily at {one['rate']:.0f}/s: {100 * one['attainment']:.2f} % in time, p99 {one['p99_ms']:.0f} ms, mean accuracy "
            f"{100 * one['quality']:.2f} % (best fixed mix {100 * one['best']:.2f} %): {mix}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--overload", type=float, default=3.0)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        return render(json.loads(sorted(RESULTS.glob("*/families.json"))[-1].read_text()))
    with tempfile.TemporaryDirectory() as folder:
        repository, measured = prepare(Path(folder))
        qualities = {one["model"]: one["quality"] for one in measured}
        names = sorted(qualities, key=lambda name: qualities[name])
        result: dict = {"qualities": qualities, "capacity": {}, "runs": []}
        with Tessera(repository, config(names)) as server:
            for name in names:
                closed = load(server, name, "--concurrency", 64, "--duration", "6s", "--warmup", "1s")
                result["capacity"][name] = closed["answered"] / 5
                print(f"{name}: {result['capacity'][name]:.0f} answers/s", file=sys.stderr)
            rate = options.overload * result["capacity"][LARGEST]
            for _ in range(options.rounds):
                for model in [*names, "digits"]:
                    one = run(server, model, rate, options.seconds, qualities)
                    one["best"] = best_mix(rate, result["capacity"], qualities)
                    print(f"{model}: {one}", file=sys.stderr)
                    result["runs"].append(one)
    target = RESULTS / date.today().isoformat()
    target.mkdir(parents=True, exist_ok=True)
    (target / "families.json").write_text(json.dumps(result, indent=1) + "\n")
    render(result)


if __name__ == "__main__":
    main()
