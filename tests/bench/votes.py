#!/usr/bin/env python3
"""A vote of classifiers of handwritten digits, next to each of its members.

    tests/run votes [--seconds S] [--render]      about a minute

Perceptrons are trained on 1,077 of the 1,797 digits of scikit-learn: seven with 4 to 32 hidden neurons, each on a sample of its own with
replacement, and seven with 24 neurons that see 24 of the 64 pixels each. `tessera variants measure` measures the weights of their votes on
360 other digits. The server answers the last 360 with each model and with pipelines in which the seven vote; one client sends 32 rows at a
time. `tessera variants vote` then shows how many models vote if they leave and join by Cocktail's rule. `--render` prints the tables of the
last run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import onnx
import tritonclient.grpc as grpcclient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench import families  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

RESULTS = Path(__file__).with_name("results")
# Hidden neurons of each model.
NEURONS = [4, 6, 8, 12, 16, 24, 32]
# Models that see some of the pixels: how many models, pixels and neurons.
PARTS, PIXELS, PART_NEURONS = 7, 24, 24
GROUPS = {
    "sizes-vote": [f"digits-{neurons}" for neurons in NEURONS],
    "parts-vote": [f"part-{number}" for number in range(PARTS)],
}
EPOCHS, RATE = 40, 3e-3
HELD_OUT = 360
OBJECTIVE = "200ms"
ROWS = 32
# Targets of the accuracy, and rows of an interval. The rows are sent this often, so that there are several intervals.
TARGETS, INTERVAL, REPEATED = [0.85, 0.90, 0.95], 120, 5


def tessera(*options: object) -> str:
    done = subprocess.run([os.environ["TESSERA_BIN"], *map(str, options)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"tessera {options[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def prepare(folder: Path, neurons: list[int], parts: int = 0) -> Path:
    """A repository with a model for each number of neurons, and this many that see some of the pixels; rows for the weights (`measure.npz`) and others (`test.npz`)."""
    x, labels = families.digits()
    for name, rows in {"measure": slice(-2 * HELD_OUT, -HELD_OUT), "test": slice(-HELD_OUT, None)}.items():
        np.savez(folder / f"{name}.npz", pixels=x[rows], label=labels[rows])
    x, labels = x[: -2 * HELD_OUT], labels[: -2 * HELD_OUT]
    repository = folder / "models"
    for seed, hidden in enumerate(neurons):
        sample = np.random.default_rng(seed).integers(0, len(x), len(x))
        layers = families.train(x[sample], labels[sample], [hidden], EPOCHS, RATE)
        place(repository, f"digits-{hidden}", layers)
    for number in range(parts):
        seen = np.zeros(x.shape[1], np.float32)
        seen[np.random.default_rng(number).permutation(len(seen))[:PIXELS]] = 1
        (weights, bias), *others = families.train(x * seen, labels, [PART_NEURONS], EPOCHS, RATE)
        place(repository, f"part-{number}", [(weights * seen[:, None], bias), *others])
    return repository


def place(repository: Path, name: str, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    target = repository / name / "1"
    target.mkdir(parents=True)
    onnx.save(families.perceptron(layers), target / "model.onnx")


def pipeline(name: str, members: list[str]) -> str:
    stages = ", ".join(f'{{ model = "{member}" }}' for member in members)
    votes = ", ".join(f'"{member}.scores"' for member in members)
    return f'[pipelines.{name}]\nslo = "{OBJECTIVE}"\nstages = [{stages}]\nvote = [{votes}]\n'


def ask(server: Tessera, model: str, pixels: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The class of each row, and the milliseconds of each request."""
    client = grpcclient.InferenceServerClient(server.grpc_address)
    classes, took = [], []
    for start in range(0, len(pixels), ROWS):
        rows = pixels[start : start + ROWS]
        tensor = grpcclient.InferInput("pixels", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        begun = time.perf_counter()
        answer = client.infer(model, [tensor])
        took.append(1000 * (time.perf_counter() - begun))
        classes.append(answer.as_numpy("class") if "vote" in model else answer.as_numpy("scores").argmax(1))
    return np.concatenate(classes), took


def render(result: dict) -> None:
    print("| model | accuracy, % | median, ms | p99, ms |")
    print("|---|---|---|---|")
    for name, one in result["models"].items():
        print(f"| `{name}` | {100 * one['accuracy']:.2f} | {one['p50_ms']:.2f} | {one['p99_ms']:.2f} |")
    print("\n| models | target, % | models in each interval | models, mean | accuracy, % |")
    print("|---|---|---|---|---|")
    for (vote, target), intervals in ((one.split(), intervals) for one, intervals in result["intervals"].items()):
        sizes = [len(one["models"]) for one in intervals]
        right = sum(one["rows"] * one["accuracy"] for one in intervals) / sum(one["rows"] for one in intervals)
        shown = ", ".join(map(str, sizes))
        print(f"| `{vote}` | {100 * float(target):.0f} | {shown} | {np.mean(sizes):.2f} | {100 * right:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        return render(json.loads(sorted(RESULTS.glob("*/votes.json"))[-1].read_text()))
    result: dict = {"models": {}, "intervals": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = prepare(folder, NEURONS, PARTS)
        names = [name for members in GROUPS.values() for name in members]
        tessera("variants", "measure", *names, "--repository", repository, "--labelled", folder / "measure.npz")
        rows = np.load(folder / "test.npz")
        with Tessera(repository, "".join(pipeline(*one) for one in GROUPS.items())) as server:
            server.wait_ready()
            for model in [*names, *GROUPS]:
                classes, took = ask(server, model, rows["pixels"])
                ends = time.monotonic() + options.seconds
                took = []
                while time.monotonic() < ends:
                    took += ask(server, model, rows["pixels"])[1]
                result["models"][model] = {
                    "accuracy": float((classes == rows["label"]).mean()),
                    "p50_ms": float(np.percentile(took, 50)),
                    "p99_ms": float(np.percentile(took, 99)),
                    "requests": len(took),
                }
                print(f"{model}: {result['models'][model]}", file=sys.stderr)
        repeated = {key: np.concatenate([rows[key]] * REPEATED) for key in rows.files}
        np.savez(folder / "repeated.npz", **repeated)
        options = ["--repository", repository, "--labelled", folder / "repeated.npz", "--interval", INTERVAL, "--json"]
        for vote, members in GROUPS.items():
            for target in TARGETS:
                report = json.loads(tessera("variants", "vote", *members, *options, "--target", target))
                result["intervals"][f"{vote} {target}"] = report["intervals"]
    target = RESULTS / date.today().isoformat()
    target.mkdir(parents=True, exist_ok=True)
    (target / "votes.json").write_text(json.dumps(result, indent=1) + "\n")
    render(result)


if __name__ == "__main__":
    main()
