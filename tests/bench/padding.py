#!/usr/bin/env python3
"""Requests of mixed length per second with and without padding to buckets.

    PYTHONPATH=tests TESSERA_BIN=target/release/tessera python tests/bench/padding.py [--zoo DIR] [--record FILE]

A closed loop of seeded requests runs against one server for each setting, one after the other, several times. An answer counts if it arrives within the
objective. Answers of every setting are compared with onnxruntime's answers to the unpadded requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as client
from fixtures.graphs import encoder
from fixtures.tessera import Tessera
from tritonclient.utils import InferenceServerException

SEED = 20261123
SHORTEST, LONGEST = 8, 256
# Shortest and longest; `short` is uniform in the logarithm.
LENGTHS = {"uniform": (SHORTEST, LONGEST), "queries": (8, 32)}
SETTINGS = {
    "none": "",
    "default": "batching.padding = { tolerance = TOLERANCE }",
    "powers": "batching.padding = { buckets = [8, 16, 32, 64, 128, 256], tolerance = TOLERANCE }",
}


@dataclass
class Run:
    """One closed loop."""

    model: str
    lengths: str
    padding: str
    repeat: int
    seconds: float
    answered_in_time: int
    late: int
    rejected: int
    per_second: float
    cpu_ms_per_answer: float
    rows_per_batch: float
    worst_difference: float


def draw(lengths: str, count: int) -> list[int]:
    random = np.random.default_rng(SEED)
    if lengths in LENGTHS:
        shortest, longest = LENGTHS[lengths]
        return random.integers(shortest, longest + 1, count).tolist()
    return np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count)).astype(int).tolist()


def requests(inputs: list[str], lengths: str, count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(SEED)
    made = []
    for length in draw(lengths, count):
        one = {name: np.zeros((1, length), np.int64) for name in inputs}
        one["input_ids"] = random.integers(100, 1000, (1, length))
        one["attention_mask"] = np.ones((1, length), np.int64)
        made.append(one)
    return made


def message(request: dict[str, np.ndarray]) -> list[grpc.InferInput]:
    tensors = []
    for name, array in request.items():
        tensor = grpc.InferInput(name, array.shape, "INT64")
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


async def closed_loop(address: str, name: str, messages: list, concurrency: int, seconds: float, slo: float):
    """(in time, late, rejected, seconds, answers to the first requests)."""
    counts, answers = {"in time": 0, "late": 0, "rejected": 0}, {}
    async with client.InferenceServerClient(address) as connection:
        begin = time.monotonic()
        next_request = 0

        async def send() -> None:
            nonlocal next_request
            while time.monotonic() - begin < seconds:
                index = next_request
                next_request += 1
                sent = time.monotonic()
                try:
                    answer = await connection.infer(name, messages[index % len(messages)])
                except InferenceServerException:
                    counts["rejected"] += 1
                    continue
                counts["in time" if time.monotonic() - sent <= slo else "late"] += 1
                if index < 64:
                    answers[index] = answer
        await asyncio.gather(*(send() for _ in range(concurrency)))
        return counts, time.monotonic() - begin, answers


def measure(model: str, path: Path, padding: str, lengths: str, repeat: int, options: argparse.Namespace) -> Run:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs, output = [value.name for value in session.get_inputs()], session.get_outputs()[0].name
    sent = requests(inputs, lengths, 2000)
    tolerance = "0.05" if "int8" in model else "0.01"
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / model / "1"
        own.mkdir(parents=True)
        (own / "model.onnx").write_bytes(path.read_bytes())
        table = f'slo = "{options.slo}ms"\nmax_batch = 8\n{SETTINGS[padding].replace("TOLERANCE", tolerance)}\n'
        with Tessera(Path(folder), config=f'[repository]\nengine = "ort"\n[models.{model}]\n{table}') as server:
            server.wait_ready(180)
            messages = [message(request) for request in sent]
            before, cpu = server.metrics(), server.cpu_seconds()
            counts, seconds, answers = asyncio.run(
                closed_loop(server.grpc_address, model, messages, options.concurrency, options.seconds, options.slo / 1e3)
            )
            after, cpu = server.metrics(), server.cpu_seconds() - cpu
    def total(part: str) -> float:
        return sum(after[key] - before.get(key, 0.0) for key in after if key.startswith(part))
    batches = total("tessera_batch_rows_count")
    worst = 0.0
    for index, answer in answers.items():
        wanted, found = session.run([output], sent[index])[0], answer.as_numpy(output)
        worst = max(worst, float(np.abs(wanted - found).max() / np.abs(wanted).max()))
    return Run(
        model, lengths, padding, repeat, round(seconds, 2), counts["in time"], counts["late"], counts["rejected"],
        round(counts["in time"] / seconds, 1), round(cpu * 1e3 / max(counts["in time"] + counts["late"], 1), 2), round(total("tessera_batch_rows_sum") / batches, 2) if batches else 0.0, worst,
    )  # fmt: skip


def generated(folder: Path) -> dict[str, Path]:
    """Encoders with seeded weights in the shape of two published models."""
    found = {}
    for name, graph in {
        "bert_tiny": lambda: encoder(2000, 128, 2, 2, 512),
        "minilm_fp32": lambda: encoder(2000, 384, 12, 6, 512),
    }.items():
        path = folder / f"{name}.onnx"
        onnx.save(graph(), str(path))
        found[name] = path
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, help="folder with minilm_int8/1/model.onnx")
    parser.add_argument("--record", type=Path, help="JSON file for the runs")
    parser.add_argument("--model", action="append", help="only this model; may be repeated")
    parser.add_argument("--lengths", nargs="+", default=["uniform", "short", "queries"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--slo", type=float, default=2000.0, help="objective in milliseconds")
    options = parser.parse_args()
    assert os.environ.get("TESSERA_BIN"), "TESSERA_BIN names the server"
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = generated(Path(folder))
        if options.zoo:
            paths["minilm_int8"] = options.zoo / "minilm_int8" / "1" / "model.onnx"
        for model, path in paths.items():
            if options.model and model not in options.model:
                continue
            for lengths in options.lengths:
                for repeat in range(options.rounds):
                    for padding in SETTINGS:
                        runs.append(measure(model, path, padding, lengths, repeat, options))
                        print(json.dumps(asdict(runs[-1])), flush=True)
    if options.record:
        options.record.write_text(json.dumps({"seed": SEED, "runs": [asdict(run) for run in runs]}, indent=1) + "\n")
    print("Requests per second, and CPU time of the server for each relative to `none`:")
    print(f"| model | lengths | {' | '.join(SETTINGS)} |\n|---|---|--:|--:|--:|")
    for key in sorted({(run.model, run.lengths) for run in runs}):
        own = {padding: [run for run in runs if (run.model, run.lengths, run.padding) == (*key, padding)] for padding in SETTINGS}
        rates = {padding: float(np.median([run.per_second for run in found])) for padding, found in own.items()}
        cpu = {padding: float(np.median([run.cpu_ms_per_answer for run in found])) for padding, found in own.items()}
        cells = [f"{rates[padding]:.0f}/s, {cpu[padding] / max(cpu['none'], 1e-3):.2f}x" for padding in SETTINGS]
        print(f"| {key[0]} | {key[1]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
