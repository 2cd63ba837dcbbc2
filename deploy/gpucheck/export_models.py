#!/usr/bin/env python3
"""Exports eight well-known architectures with random weights as ONNX with a free batch dimension, and what torch answers to
random inputs. How fast a model runs does not depend on its weights.

    python3 export_models.py models [--only resnet50,lenet]

For each a folder: model.onnx, reference.json, and the tensors that it names as raw little-endian files. Models that are
there already are left alone. Needs torch and torchvision, and transformers for bert_base; no network."""

import argparse
import json
import pathlib
import shutil
import sys

import torch

ROWS = 2
SEED = 6
# Norm of the difference over the norm of the answer: a GPU rounds products of 32-bit floats to 10 bits of mantissa.
TOLERANCE = 0.02
TYPES = {torch.float32: "FP32", torch.int64: "INT64", torch.int32: "INT32"}


def lenet():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


class Heads(torch.nn.Module):
    """SSD-MobileNet up to its heads: what comes after picks boxes on the host."""

    def __init__(self):
        from torchvision.models.detection import ssdlite320_mobilenet_v3_large

        super().__init__()
        model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        self.backbone, self.head = model.backbone, model.head

    def forward(self, x):
        found = self.head(list(self.backbone(x).values()))
        return found["bbox_regression"], found["cls_logits"]


class Hidden(torch.nn.Module):
    """BERT's last hidden state."""

    def __init__(self):
        from transformers import BertConfig, BertModel

        super().__init__()
        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, x):
        return self.bert(input_ids=x).last_hidden_state


def vision(name, **options):
    def build():
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options)

    return build


MODELS = {
    "lenet": (lenet, (1, 28, 28)),
    "resnet50": (vision("resnet50"), (3, 224, 224)),
    "mobilenet_v2": (vision("mobilenet_v2"), (3, 224, 224)),
    "googlenet": (vision("googlenet", aux_logits=False, init_weights=False), (3, 224, 224)),
    "vgg16": (vision("vgg16"), (3, 224, 224)),
    "densenet161": (vision("densenet161"), (3, 224, 224)),
    "ssd_mobilenet": (Heads, (3, 320, 320)),
    "bert_base": (Hidden, None),
}


def settle(net, inputs):
    """Random weights without fitting norms blow values up until nothing can be compared: the norms are fitted to the data."""
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        net.train()
        net(inputs)
    return net.eval()


def stored(folder, kind, number, name, tensor):
    file = f"{kind}{number}.bin"
    tensor = tensor.detach().cpu().contiguous()
    (folder / file).write_bytes(tensor.numpy().tobytes())
    return {"name": name, "datatype": TYPES[tensor.dtype], "shape": list(tensor.shape), "file": file}


def export(name, folder):
    torch.manual_seed(SEED)
    build, shape = MODELS[name]
    net = build().requires_grad_(False)
    inputs = torch.randn(ROWS, *shape) if shape else torch.randint(0, 30_000, (ROWS, 128))
    with torch.no_grad():
        outputs = settle(net, inputs)(inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        names = [f"y{number}" for number in range(len(outputs))]
        torch.onnx.export(
            net, (inputs,), str(folder / "model.onnx"), input_names=["x"], output_names=names,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},),
            dynamo=True, external_data=False, optimize=True, verbose=False,
        )
    reference = {
        "rows": ROWS,
        "tolerance": TOLERANCE,
        "inputs": [stored(folder, "input", 0, "x", inputs)],
        "outputs": [stored(folder, "output", number, *pair) for number, pair in enumerate(zip(names, outputs))],
    }
    (folder / "reference.json").write_text(json.dumps(reference, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", type=lambda words: words.split(","), default=list(MODELS), help="some of: " + ", ".join(MODELS))
    args = parser.parse_args()
    failed = False
    for name in args.only:
        if name not in MODELS:
            parser.error(f"--only {name}: expected some of {', '.join(MODELS)}")
        if (args.folder / name / "reference.json").exists():
            continue
        half_done = args.folder / f".{name}"
        shutil.rmtree(half_done, ignore_errors=True)
        half_done.mkdir(parents=True)
        try:
            export(name, half_done)
        except Exception as error:  # one model that a version of torch cannot export must not keep the others back
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            shutil.rmtree(half_done)
            failed = True
            continue
        shutil.rmtree(args.folder / name, ignore_errors=True)
        half_done.rename(args.folder / name)
        print(f"{name}: {(args.folder / name / 'model.onnx').stat().st_size / 2**20:.1f} MiB", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
