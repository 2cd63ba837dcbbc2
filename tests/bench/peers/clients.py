"""Clients that are not ours: wrk over HTTP, h2load over gRPC. Closed loop: the next request when one is answered."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.peers import process
from bench.peers.models import Model
from bench.peers.servers import Server

HERE = Path(__file__).resolve().parent
# A client that hangs is ended after so much more than the time it was given.
GRACE_S = 60
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True)
class Load:
    """One measurement of one server."""

    requests: int
    seconds: float
    errors: int
    # Percentile -> microseconds.
    latency_us: dict[float, float]
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


def measured(server: Server, model: str, command: list[str], seconds: float) -> tuple[str, float, int]:
    """Output of the client, CPU seconds of the server during the run, and good answers by the client's count."""
    answered, used = server.answered(model), process.cpu_seconds(server.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + GRACE_S)
    used = process.cpu_seconds(server.pid) - used
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr, used, server.answered(model) - answered


def wrk(server: Server, model: Model, json_only: bool, concurrency: int, seconds: int, prefix: list[str]) -> Load:
    if json_only:
        content, head = model.http_json(model.rows[0]), 0
    else:
        content, head = model.http_binary(model.rows[0])
    with tempfile.NamedTemporaryFile(suffix=".bin") as body:
        body.write(content)
        body.flush()
        url = f"http://{server.http}/v2/models/{model.name}/infer"
        command = [*prefix, "wrk", "-t1", f"-c{concurrency}", f"-d{seconds}s", "--timeout", "10s"]
        command += ["-s", str(HERE / "post.lua"), url, "--", body.name, str(head)]
        raw, cpu, answered = measured(server, model.name, command, seconds)
    found = re.search(r"RESULT (\d+) (\d+) (\d+)", raw)
    if found is None:
        raise RuntimeError(f"wrk printed no result:\n{raw}")
    requests, micros, errors = map(int, found.groups())
    latency = {float(p): float(us) for p, us in re.findall(r"PERCENTILE (\S+) (\d+)", raw)}
    # What is still in flight when time is up is answered and not counted: only too few answers are failures.
    errors = max(errors, requests - answered)
    return Load(requests, micros / 1e6, errors, latency, cpu * 1e6 / max(requests, 1), raw)


def h2load(server: Server, model: Model, concurrency: int, seconds: int, prefix: list[str]) -> Load:
    """One connection with `concurrency` streams in flight, as one gRPC channel has it."""
    with tempfile.TemporaryDirectory(prefix="h2load-") as folder:
        log, body = Path(folder) / "log", Path(folder) / "body"
        body.write_bytes(model.grpc(model.rows[0]))
        url = f"http://{server.grpc}/inference.GRPCInferenceService/ModelInfer"
        command = [*prefix, "h2load", "-c1", f"-m{concurrency}", "-t1", f"-D{seconds}", f"--log-file={log}"]
        command += ["-d", str(body), "-H", "content-type: application/grpc", "-H", "te: trailers", url]
        raw, cpu, answered = measured(server, model.name, command, seconds)
        micros = np.array([int(line.split("\t")[2]) for line in log.read_text().splitlines()] or [0])
    found = re.search(r"requests: (\d+) total.*?(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", raw)
    if found is None:
        raise RuntimeError(f"h2load printed no result:\n{raw}")
    succeeded, *bad = map(int, found.groups()[1:])
    # A failed gRPC call is a successful HTTP response: only the server's own count tells them apart.
    errors = sum(bad) + max(0, succeeded - answered)
    latency = {p: float(np.percentile(micros, p)) for p in PERCENTILES}
    return Load(succeeded, float(seconds), errors, latency, cpu * 1e6 / max(succeeded, 1), raw)
