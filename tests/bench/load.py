"""Drive a server: wrk for HTTP, h2load for gRPC, and a few threads where single latencies matter."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import process

HERE = Path(__file__).resolve().parent


@dataclass
class Load:
    """One measurement of one server."""

    requests: int
    seconds: float
    errors: int
    p50_us: float
    p99_us: float
    cpu_us: float
    raw: str

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def need_tools() -> None:
    missing = [tool for tool in ("wrk", "h2load", "taskset") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(
            f"error: {', '.join(missing)} not found; on Debian: apt-get install wrk nghttp2-client util-linux"
        )


def identity_body(folder: Path) -> tuple[Path, int]:
    """The HTTP request for f32[1,16], binary both ways; its file and the length of its JSON part."""
    head = json.dumps(
        {
            "inputs": [
                {"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": 64}}
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        },
        separators=(",", ":"),
    ).encode()
    path = folder / "http.bin"
    path.write_bytes(head + struct.pack("<16f", *range(16)))
    return path, len(head)


def identity_message(folder: Path) -> Path:
    """The same as a length-prefixed gRPC message."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name="identity")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 16])
    message.raw_input_contents.append(struct.pack("<16f", *range(16)))
    encoded = message.SerializeToString()
    path = folder / "grpc.bin"
    path.write_bytes(b"\0" + struct.pack(">I", len(encoded)) + encoded)
    return path


def measured(pid: int, command: list[str]) -> tuple[str, float]:
    before = process.cpu_seconds(pid)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr, process.cpu_seconds(pid) - before


def wrk(address: str, pid: int, core: int, body: tuple[Path, int], concurrency: int, seconds: int) -> Load:
    command = [
        "taskset",
        "-c",
        str(core),
        "wrk",
        "-t1",
        f"-c{concurrency}",
        f"-d{seconds}s",
        "--timeout",
        "10s",
        "-s",
        str(HERE / "post.lua"),
        f"http://{address}/v2/models/identity/infer",
        "--",
        str(body[0]),
        str(body[1]),
    ]
    raw, cpu = measured(pid, command)
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", raw)
    if found is None:
        raise RuntimeError(f"wrk printed no result:\n{raw}")
    requests, micros, errors, p50, p99 = map(int, found.groups())
    return Load(requests, micros / 1e6, errors, p50, p99, cpu * 1e6 / max(requests, 1), raw)


def h2load(address: str, pid: int, core: int, body: Path, concurrency: int, seconds: int) -> Load:
    """One connection with `concurrency` streams in flight, as one gRPC channel has it."""
    log = body.parent / "h2load.log"
    command = [
        "taskset",
        "-c",
        str(core),
        "h2load",
        "-c1",
        f"-m{concurrency}",
        "-t1",
        f"-D{seconds}",
        f"--log-file={log}",
        "-d",
        str(body),
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        f"http://{address}/inference.GRPCInferenceService/ModelInfer",
    ]
    log.unlink(missing_ok=True)
    raw, cpu = measured(pid, command)
    found = re.search(r"requests: (\d+) total.*?(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", raw)
    if found is None:
        raise RuntimeError(f"h2load printed no result:\n{raw}")
    succeeded, *bad = map(int, found.groups()[1:])
    micros = np.array([int(line.split("\t")[2]) for line in log.read_text().splitlines()] or [0])
    p50, p99 = np.percentile(micros, [50, 99])
    return Load(succeeded, float(seconds), sum(bad), float(p50), float(p99), cpu * 1e6 / max(succeeded, 1), raw)


def closed_loop(
    address: str, pid: int, path: str, body: bytes, headers: dict[str, str], concurrency: int, requests: int
) -> tuple[Load, list[dict[str, str]]]:
    """`concurrency` threads with a connection each share `requests` requests; also the response headers of each."""
    latencies: list[float] = []
    kept: list[dict[str, str]] = []
    errors = 0
    left = iter(range(requests))
    lock = threading.Lock()

    def work() -> None:
        nonlocal errors
        connection = http.client.HTTPConnection(address, timeout=60)
        while True:
            with lock:
                if next(left, None) is None:
                    break
            started = time.perf_counter()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            taken = time.perf_counter() - started
            with lock:
                errors += answer.status != 200
                latencies.append(taken * 1e6)
                kept.append({key.lower(): value for key, value in answer.getheaders()})
        connection.close()

    before, started = process.cpu_seconds(pid), time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, cpu = time.perf_counter() - started, process.cpu_seconds(pid) - before
    p50, p99 = np.percentile(latencies, [50, 99])
    load = Load(requests, seconds, errors, float(p50), float(p99), cpu * 1e6 / requests, json.dumps(latencies))
    return load, kept
