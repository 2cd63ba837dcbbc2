"""The four experiments, each one function from a setting to rows of the report."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fixtures.tessera import Tessera
from oracle import triton

from bench import load, process

HERE = Path(__file__).resolve().parent
SERVER_CORE, CLIENT_CORE = 0, 1
CONCURRENCY = (1, 8, 32)


@dataclass
class Setting:
    """Where things are and where results go."""

    folder: Path
    zoo: Path
    oracle: Path | None
    seconds: int
    report: object


@dataclass
class Server:
    """What the experiments need of either server."""

    name: str
    http: str
    grpc: str
    pid: int

    def answered(self, model: str) -> int:
        """Successful requests of a model so far: what proves that h2load was not measuring refusals."""
        with urllib.request.urlopen(f"http://{self.http}/v2/models/{model}/stats", timeout=10) as answer:
            return json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"]


@contextlib.contextmanager
def tessera(repository: Path, config: str, name: str = "tessera", prefix: list[str] | None = None) -> Iterator[Server]:
    with Tessera(repository, config=config, prefix=prefix) as server:
        server.wait_ready(120)
        yield Server(name, server.http_address, server.grpc_address, server.pid)


@contextlib.contextmanager
def reference(
    setting: Setting,
    models: Path,
    name: str,
    batching: str | None = None,
    instances: int = 1,
    prefix: list[str] | None = None,
    script: str = "model.py",
) -> Iterator[Server]:
    wrapped = setting.folder / name.replace(" ", "-")
    triton.wrap(models, wrapped, batching, instances, script)
    with triton.Triton.on_free_ports(setting.oracle, wrapped, prefix=prefix) as server:
        server.wait_ready()
        yield Server(name, server.http_address, server.grpc_address, server.process.pid)


def only(setting: Setting, model: str) -> Path:
    """A repository with one model of the zoo."""
    folder = setting.folder / f"only-{model}"
    if not folder.exists():
        shutil.copytree(setting.zoo / model / "1", folder / model / "1")
    return folder


def identity(setting: Setting) -> None:
    report = setting.report
    pin = ["taskset", "-c", str(SERVER_CORE)]
    config = '[models.identity]\nslo = "1s"\n'
    candidates: list[Callable] = [
        lambda e=e: tessera(HERE / "models", f'[repository]\nengine = "{e}"\n{config}', f"tessera {e}", pin)
        for e in ("ort", "tract")
    ]
    if setting.oracle:
        candidates.append(lambda: reference(setting, HERE / "models", "triton onnxruntime", prefix=pin))
        candidates.append(lambda: reference(setting, HERE / "models", "triton echo", prefix=pin, script="echo.py"))
    body, message = load.identity_body(setting.folder), load.identity_message(setting.folder)
    report.heading(f"identity f32[1,16], server on one core, client on the other, {setting.seconds} s each")
    report.header(
        "server", "protocol", "concurrency", "requests/s", "server CPU us/request", "p50 us", "p99 us", "errors"
    )
    for start in candidates:
        with start() as server:
            load.wrk(server.http, server.pid, CLIENT_CORE, body, 8, 1)
            for protocol in ("http", "grpc"):
                for concurrency in CONCURRENCY:
                    before = server.answered("identity")
                    if protocol == "http":
                        found = load.wrk(server.http, server.pid, CLIENT_CORE, body, concurrency, setting.seconds)
                    else:
                        found = load.h2load(server.grpc, server.pid, CLIENT_CORE, message, concurrency, setting.seconds)
                    wrong = found.errors + max(0, found.requests - (server.answered("identity") - before))
                    report.keep(f"identity-{server.name}-{protocol}-{concurrency}", found.raw)
                    report.row(
                        server.name,
                        protocol,
                        concurrency,
                        f"{found.rate:.0f}",
                        f"{found.cpu_us:.1f}",
                        f"{found.p50_us:.0f}",
                        f"{found.p99_us:.0f}",
                        wrong,
                    )


def magika(setting: Setting) -> None:
    report = setting.report
    repository = only(setting, "magika")
    with np.load(setting.zoo / "magika" / "reference.npz") as file:
        row = file["0.in.bytes"]
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "bytes",
                    "shape": [1, 2048],
                    "datatype": "INT32",
                    "parameters": {"binary_data_size": row.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    ours = {
        "tessera default": "",
        "tessera triton (batching on)": 'batching = { policy = "triton" }\n',
        "tessera max_batch 0 (batching off)": "max_batch = 0\n",
    }
    candidates = [
        lambda n=n, extra=extra: tessera(repository, f'[models.magika]\nslo = "2s"\n{extra}', n)
        for n, extra in ours.items()
    ]
    if setting.oracle:
        candidates.append(lambda: reference(setting, repository, "triton batching on", "", 2))
        candidates.append(lambda: reference(setting, repository, "triton batching off", instances=2))
    report.heading("magika at concurrency 8, both cores")
    report.header("server", "requests/s", "p50 ms", "p99 ms", "server CPU ms/request", "errors")
    for start in candidates:
        with start() as server:
            path, body = "/v2/models/magika/infer", head + row.tobytes()
            ask = functools.partial(load.closed_loop, server.http, server.pid, path, body, headers, 8)
            ask(100)
            found, _ = ask(600)
            report.keep(f"magika-{server.name}", found.raw)
            report.row(
                server.name,
                f"{found.rate:.1f}",
                f"{found.p50_us / 1e3:.1f}",
                f"{found.p99_us / 1e3:.1f}",
                f"{found.cpu_us / 1e3:.2f}",
                found.errors,
            )


def image(setting: Setting) -> None:
    report = setting.report
    repository = only(setting, "squeezenet")
    with np.load(setting.zoo / "squeezenet" / "reference.npz") as file:
        photo = file["0.in.data_0"]
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "data_0",
                    "shape": list(photo.shape),
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": photo.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    pin = ["taskset", "-c", str(SERVER_CORE)]
    candidates = [lambda: tessera(repository, '[models.squeezenet]\nslo = "5s"\n', "tessera", pin)]
    if setting.oracle:
        candidates.append(lambda: reference(setting, repository, "triton", prefix=pin))
    report.heading(
        f"{photo.nbytes // 1000} KB image over HTTP binary into squeezenet, one at a time, server on one core"
    )
    report.header("server", "p50 ms at the client", "compute p50 ms", "ratio", "server CPU ms/request", "errors")
    for start in candidates:
        with start() as server:
            path, body = "/v2/models/squeezenet/infer", head + photo.tobytes()
            ask = functools.partial(load.closed_loop, server.http, server.pid, path, body, headers, 1)
            ask(20)
            before = compute(server, "squeezenet")
            found, kept = ask(150)
            after = compute(server, "squeezenet")
            micros = [int(one["x-tessera-compute-us"]) for one in kept if "x-tessera-compute-us" in one]
            own = float(np.median(micros)) if micros else (after[1] - before[1]) / max(1, after[0] - before[0]) / 1e3
            report.keep(f"image-{server.name}", found.raw)
            report.row(
                server.name,
                f"{found.p50_us / 1e3:.2f}",
                f"{own / 1e3:.2f}",
                f"{found.p50_us / own:.3f}",
                f"{found.cpu_us / 1e3:.2f}",
                found.errors,
            )


def compute(server: Server, model: str) -> tuple[int, int]:
    """(executions, nanoseconds in compute) from the statistics extension."""
    with urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/stats", timeout=10) as answer:
        stats = json.load(answer)["model_stats"][0]["inference_stats"]["compute_infer"]
    return stats["count"], stats["ns"]


ENGINE_ALONE = """
import sys, numpy
def pss():
    return next(int(l.split()[1]) for l in open('/proc/self/smaps_rollup') if l.startswith('Pss:')) / 1024
before = pss()
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])
session.run(None, {'INPUT0': numpy.zeros((1, 16), 'float32')})
print(pss() - before)
"""


def memory(setting: Setting) -> None:
    report = setting.report
    model = HERE / "models" / "identity" / "1" / "model.onnx"
    alone = float(
        subprocess.run(
            [sys.executable, "-c", ENGINE_ALONE, str(model)], capture_output=True, text=True, check=True
        ).stdout
    )
    report.heading("idle memory with the identity model loaded (proportional set size)")
    report.header("server", "MiB", "above onnxruntime alone MiB")
    report.row("onnxruntime alone, in Python", f"{alone:.1f}", "-")
    config = '[models.identity]\nslo = "1s"\n'
    candidates: list[Callable] = [
        lambda e=e: tessera(HERE / "models", f'[repository]\nengine = "{e}"\n{config}', f"tessera {e}")
        for e in ("ort", "tract")
    ]
    if setting.oracle:
        candidates.append(lambda: reference(setting, HERE / "models", "triton idle"))
    for start in candidates:
        with start() as server:
            used = process.memory_mib(server.pid)
            above = "-" if "tract" in server.name else f"{used - alone:.1f}"
            report.row(server.name, f"{used:.1f}", above)


ALL: dict[str, Callable[[Setting], None]] = {"identity": identity, "magika": magika, "image": image, "memory": memory}
