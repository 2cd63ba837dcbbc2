"""Run a real MLServer (from PyPI) on loopback, with a custom runtime over the same onnxruntime as everything else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from oracle.child import CannotRun, Child, free_ports

HERE = Path(__file__).resolve().parent

DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


def model_settings(name: str, model: Path, extra: dict[str, object]) -> dict[str, object]:
    """The model-settings.json of one ONNX model; `extra` is where adaptive batching is set."""
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), quiet, providers=["CPUExecutionProvider"])

    def tensors(values: list) -> list[dict[str, object]]:
        return [
            {
                "name": value.name,
                "datatype": DATATYPES[value.type],
                "shape": [dim if isinstance(dim, int) else -1 for dim in value.shape],
            }
            for value in values
        ]

    return {
        "name": name,
        "implementation": "runtime.Onnx",
        "platform": "onnxruntime",
        "inputs": tensors(session.get_inputs()),
        "outputs": tensors(session.get_outputs()),
        **extra,
        "parameters": {"uri": str(model), "version": "1"},
    }


def wrap(source: Path, target: Path, extra: dict[str, object] | None = None) -> None:
    """Mirror the ONNX models of `source` (Triton's layout) under `target` as MLServer has it."""
    for model in sorted(source.glob("*/1/model.onnx")):
        folder = target / model.parts[-3]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(HERE / "runtime.py", folder / "runtime.py")
        settings = model_settings(model.parts[-3], model, extra or {})
        (folder / "model-settings.json").write_text(json.dumps(settings, indent=2) + "\n")


class MLServer(Child):
    """A running MLServer; a context manager that ends it."""

    def __init__(self, venv: Path, repository: Path, workers: int, prefix: list[str] | None = None) -> None:
        program = venv / "bin" / "mlserver"
        if not program.is_file():
            raise CannotRun(f"mlserver is not installed in {venv}")
        http, grpc, metrics = free_ports(3)
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        settings = {
            "debug": False,
            "host": "127.0.0.1",
            "http_port": http,
            "grpc_port": grpc,
            "metrics_port": metrics,
            "metrics_dir": str(repository / ".metrics"),
            "parallel_workers": workers,
        }
        (repository / ".metrics").mkdir(exist_ok=True)
        (repository / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")
        command = [*(prefix or []), str(program), "start", str(repository)]
        environment = {"PATH": f"{program.parent}:{os.environ.get('PATH', '')}", "HOME": os.environ.get("HOME", "/")}
        super().__init__("mlserver", http, grpc, command, environment)
