#!/usr/bin/env python3
"""MiniLM with 32-bit and 8-bit weights as a family, by agreement: more requests than the 32-bit one answers.

    tests/run minilm-family [--rounds N] [--seconds S] [--share S]      about 3 minutes

The published file stores 8-bit weights and computes in 32 bits; folding its constants gives the 32-bit model. `tessera variants make --int8`
computes in 8 bits. A head finds the nearest of 64 reference sentences, so that answers can be compared: sentences are sequences of token
numbers, and a row is a reference of which a third is replaced. Without labels, quality is the agreement with the 32-bit model. Requests
come at a share of what the 8-bit variant answers alone (Poisson arrivals, open loop). Client and server share the cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import date
from pathlib import Path

import families
import numpy as np
import onnx
import onnxruntime
from fixtures.tessera import Tessera
from onnx import TensorProto, helper, numpy_helper

ZOO = Path(__file__).resolve().parents[2] / "target" / "zoo" / "minilm_int8" / "1" / "model.onnx"
NAMES = ["minilm-fp32", "minilm-fp32-int8"]
REFERENCES, TOKENS, ROWS = 64, 24, 512
# Numbers of whole words in BERT's vocabulary.
WORDS = (1996, 20000)
OBJECTIVE = "1s"
# Rows of a request. The 8-bit model scales a whole batch, so rows of different requests must not be in one.
BATCH = 8


def folded(path: Path) -> onnx.ModelProto:
    """The model with its constants computed: weights of 32 bits."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(ZOO), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def encoder(model: onnx.ModelProto) -> onnx.ModelProto:
    """Takes `ids` only, and gives sentence embeddings of length 1: the mean over the tokens."""
    nodes = [
        helper.make_node("Greater", ["ids", "no_token"], ["is_token"]),
        helper.make_node("Cast", ["is_token"], ["attention_mask"], to=TensorProto.INT64),
        helper.make_node("Mul", ["ids", "no_token"], ["token_type_ids"]),
        helper.make_node("Identity", ["ids"], ["input_ids"]),
    ]
    pooling = [
        helper.make_node("ReduceMean", ["last_hidden_state"], ["sentence_mean"], axes=[1], keepdims=0),
        helper.make_node("ReduceL2", ["sentence_mean"], ["norm"], axes=[1], keepdims=1),
        helper.make_node("Div", ["sentence_mean", "norm"], ["sentence"]),
    ]
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.asarray(0, np.int64), "no_token"))
    own = list(graph.node)
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend([*nodes, *own, *pooling])
    graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", TOKENS]))
    graph.output.append(helper.make_tensor_value_info("sentence", TensorProto.FLOAT, ["N", 384]))
    return model


def with_references(model: onnx.ModelProto, embeddings: np.ndarray) -> onnx.ModelProto:
    """Scores of the references instead of the embedding."""
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(embeddings.T), "references"))
    graph.node.append(helper.make_node("MatMul", ["sentence", "references"], ["scores"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", REFERENCES]))
    return model


def prepare(folder: Path) -> tuple[Path, list[dict]]:
    """A repository, and the measured agreement of its models."""
    generator = np.random.default_rng(11)
    references = generator.integers(*WORDS, (REFERENCES, TOKENS))
    rows = references[generator.integers(0, REFERENCES, ROWS)]
    rows = np.where(generator.random(rows.shape) < 1 / 3, generator.integers(*WORDS, rows.shape), rows)
    repository = folder / "models"
    place = repository / NAMES[0] / "1" / "model.onnx"
    place.parent.mkdir(parents=True)
    model = encoder(folded(folder / "folded.onnx"))
    onnx.save(model, folder / "encoder.onnx")
    session = onnxruntime.InferenceSession(str(folder / "encoder.onnx"), providers=["CPUExecutionProvider"])
    (embeddings,) = session.run(None, {"ids": references})
    onnx.save(with_references(model, embeddings), place)
    np.savez(folder / "rows.npz", ids=rows)
    families.tessera("variants", "make", NAMES[0], "--repository", repository, "--int8", "--python", sys.executable)
    measured = families.tessera(
        "variants", "measure", *NAMES, "--repository", repository, "--data", folder / "rows.npz", "--reference", NAMES[0], "--json"
    )
    return repository, json.loads(measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.9)
    options = parser.parse_args()
    families.OBJECTIVE, families.ROWS = OBJECTIVE, BATCH
    with tempfile.TemporaryDirectory() as folder:
        repository, measured = prepare(Path(folder))
        qualities = {one["model"]: one["quality"] for one in measured}
        result: dict = {"qualities": qualities, "capacity": {}, "runs": []}
        models = "".join(f'[models.{name}]\n{"" if name.endswith("-int8") else f"max_batch = {BATCH}"}\nslo = "{OBJECTIVE}"\n' for name in NAMES)
        config = f'{models}[families.minilm]\nslo = "{OBJECTIVE}"\nvariants = {json.dumps(NAMES)}\n'
        with Tessera(repository, config) as server:
            for name in NAMES:
                closed = families.load(server, name, "--concurrency", 16, "--duration", "6s", "--warmup", "1s")
                result["capacity"][name] = closed["answered"] / 5
            rate = options.share * max(result["capacity"].values())
            for _ in range(options.rounds):
                for model in [*NAMES, "minilm"]:
                    one = families.run(server, model, rate, options.seconds, qualities)
                    one["best"] = families.best_mix(rate, result["capacity"], qualities)
                    result["runs"].append(one)
    target = families.RESULTS / date.today().isoformat()
    target.mkdir(parents=True, exist_ok=True)
    (target / "minilm-family.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["capacity"]))
    print("| model | agreement | in time, % | p99, ms | mean agreement | best fixed mix | answers |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for one in result["runs"]:
        quality = qualities.get(one["model"])
        print(
            f"| `{one['model']}` | {'' if quality is None else f'{quality:.4f}'} | {100 * one['attainment']:.2f} | {one['p99_ms']:.0f} "
            f"| {one['quality']:.4f} | {one['best']:.4f} | {one['answered']} |"
        )


if __name__ == "__main__":
    main()
