#!/usr/bin/env python3
"""Exports eight well-known architectures with random weights as ONNX with a free batch dimension, and torch's outputs for
random inputs. The speed of a model does not depend on its weights.

    python3 export_models.py models [--only resnet50,lenet]

Each gets a folder with model.onnx, reference.json, and the tensors named there as raw little-endian files. Existing models are
not exported again. Needs only torch: no torchvision, no onnx, no network."""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import shutil
import sys
import warnings

import torch

from architectures import MODELS, Bert

ROWS = 2
SETTLING_ROWS = 8
SEED = 6
OPSET = 17
# Processes that export at once, and threads of torch in each.
PROCESSES = 4
THREADS = 2
# Tolerance, as a multiple of the difference caused by rounding factors as a GPU does, by norms.
ROUNDINGS = 4
TOLERANCE_MIN = 0.002
TYPES = {torch.float32: "FP32", torch.int64: "INT64"}


def settle(net, inputs):
    """Makes random weights comparable: with plain ones, values explode or vanish. Convolutions keep the variance, and norms
    are fitted to data."""
    for module in net.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        # Most values then pass the following activation. Values clipped at zero would amplify small differences from layer to
        # layer, which training would have prevented.
        norm.bias.fill_(2.0)
    if norms:
        net.train()
        net(inputs)
    return net.eval()


def rounded(tensor):
    """Rounds factors as a GPU does (TF32): 10 bits of mantissa."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def tolerance(net, inputs, outputs):
    """The tolerance of outputs. The effect of rounding depends on the network; some amplify it in every layer. Leaves the
    network with rounded weights."""
    for module in net.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            module.weight.copy_(rounded(module.weight))
            module.register_forward_pre_hook(lambda module, given: (rounded(given[0]),))
    changed = net(inputs)
    changed = changed if isinstance(changed, tuple) else (changed,)
    apart = max(float((one - other).norm() / other.norm()) for one, other in zip(changed, outputs))
    return max(ROUNDINGS * apart, TOLERANCE_MIN)


def stored(folder, kind, number, name, tensor):
    file = f"{kind}{number}.bin"
    # A copy, because a view would be written as the whole tensor.
    tensor = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    (folder / file).write_bytes(bytes(tensor.untyped_storage()))
    return {"name": name, "datatype": TYPES[tensor.dtype], "shape": list(tensor.shape), "file": file}


def without_onnx():
    """Runs without the package `onnx`, which the exporter only needs for models with custom functions."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        for name in ("torch.onnx._internal.torchscript_exporter.onnx_proto_utils", "torch.onnx._internal.onnx_proto_utils"):
            try:
                module = __import__(name, fromlist=["_add_onnxscript_fn"])
            except ImportError:
                continue
            if hasattr(module, "_add_onnxscript_fn"):
                module._add_onnxscript_fn = lambda model_bytes, custom_opsets: model_bytes


def write(net, inputs, names, file):
    """Exports with the older of torch's two exporters, because the newer one needs packages that torch does not install."""
    without_onnx()
    free = {name: {0: "batch"} for name in ["x", *names]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (inputs,), str(file), input_names=["x"], output_names=names, dynamic_axes=free, opset_version=OPSET,
            dynamo=False,
        )


def export(name, folder):
    torch.manual_seed(SEED)
    build, shape = MODELS[name]

    def rows(count):
        if shape[0] == "words":
            return torch.randint(0, Bert.VOCABULARY, (count, *shape[1:]))
        return torch.randn(count, *shape)

    net = build().requires_grad_(False)
    with torch.no_grad():
        net = settle(net, rows(SETTLING_ROWS))
        inputs = rows(ROWS)
        outputs = net(inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        names = [f"y{number}" for number in range(len(outputs))]
        write(net, inputs, names, folder / "model.onnx")
        allowed = tolerance(net, inputs, outputs)
    reference = {
        "rows": ROWS,
        "tolerance": round(allowed, 6),
        "inputs": [stored(folder, "input", 0, "x", inputs)],
        "outputs": [stored(folder, "output", number, *pair) for number, pair in enumerate(zip(names, outputs))],
    }
    (folder / "reference.json").write_text(json.dumps(reference, indent=1))


def export_into(name, folder):
    """Exports a model unless it is there. Returns a line about it, and whether it failed."""
    if (folder / name / "reference.json").exists():
        return None, False
    torch.set_num_threads(THREADS)
    half_done = folder / f".{name}"
    shutil.rmtree(half_done, ignore_errors=True)
    half_done.mkdir(parents=True)
    try:
        export(name, half_done)
    except Exception as error:  # a model that a version of torch cannot export must not stop the others
        shutil.rmtree(half_done)
        return f"{name}: {type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}", True
    shutil.rmtree(folder / name, ignore_errors=True)
    half_done.rename(folder / name)
    return f"{name}: {(folder / name / 'model.onnx').stat().st_size / 2**20:.1f} MiB", False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", type=lambda words: words.split(","), default=list(MODELS), help="some of: " + ", ".join(MODELS))
    args = parser.parse_args()
    for name in args.only:
        if name not in MODELS:
            parser.error(f"--only {name}: expected some of {', '.join(MODELS)}")
    processes = max(1, min(PROCESSES, len(args.only), (os.cpu_count() or 1) // THREADS))
    failed = False
    # Models with most weights first: they take longest.
    order = sorted(args.only, key=lambda name: name not in ("vgg16", "bert_base", "densenet161"))
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        for done in concurrent.futures.as_completed([pool.submit(export_into, name, args.folder) for name in order]):
            line, wrong = done.result()
            failed |= wrong
            if line:
                print(line, file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
