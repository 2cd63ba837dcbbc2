"""perf_analyzer 2.51 measures Tessera over every transport, with every way to send tensors."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path

import pytest

from bench.peers.analyzer import Analyzer
from fixtures.tessera import Tessera
from windows import IN_WINDOWS

HTTP, GRPC = ["-i", "http"], ["-i", "grpc"]
STREAM = [*GRPC, "--streaming"]
SHARED = ["--shared-memory", "system"]
JSON = ["--input-tensor-format", "json", "--output-tensor-format", "json"]
FREE = ["--shape", "INPUT0:7"]
# Name -> model and options.
RUNS = {
    "http": ("simple", HTTP),
    "http_json": ("simple", [*HTTP, *JSON]),
    "http_async": ("simple", [*HTTP, "--async"]),
    "http_batch": ("simple", [*HTTP, "-b", "4"]),
    "http_gzip": ("simple", [*HTTP, "-b", "8"]),
    "http_shared": ("simple", [*HTTP, *SHARED]),
    "http_shared_batch": ("simple", [*HTTP, *SHARED, "-b", "4"]),
    "http_rate": ("simple", [*HTTP, "--request-rate-range", "100"]),
    "grpc": ("simple", GRPC),
    "grpc_async": ("simple", [*GRPC, "--async"]),
    "grpc_compressed": ("simple", [*GRPC, "--grpc-compression-algorithm", "gzip"]),
    "grpc_shared": ("simple", [*GRPC, *SHARED]),
    "grpc_shared_batch": ("simple", [*GRPC, *SHARED, "-b", "4"]),
    "stream": ("simple", [*STREAM, "--async"]),
    "stream_shared": ("simple", [*STREAM, "--async", *SHARED]),
    "free_shape": ("free", [*HTTP, *FREE]),
    "free_shape_shared": ("free", [*GRPC, *FREE, *SHARED]),
    "text": ("words", HTTP),
    "text_shared": ("words", [*GRPC, *SHARED]),
    "without_batch": ("fixed", GRPC),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_request_is_answered(analyzer: Analyzer, server: Tessera, name: str, tmp_path: Path) -> None:
    model, options = RUNS[name]
    address = server.http_address if "http" in options else server.grpc_address
    table = tmp_path / "table.csv"
    load = [] if "--request-rate-range" in options else ["--concurrency-range", "2"]
    command = [str(analyzer.program), "-m", model, "-u", address, *options, *load, *IN_WINDOWS, "-f", str(table)]
    before = server.metric("tessera_requests_total", model=model)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": analyzer.libraries},
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert "error" not in output.lower(), output[-3000:]
    (row,) = csv.DictReader(table.open())
    assert float(row["Inferences/Second"]) > 0
    assert server.metric("tessera_requests_total", model=model) - before >= 200
    with_regions = [region for region in regions(server) if region]
    assert with_regions == [], "perf_analyzer unregisters what it registered"


def regions(server: Tessera) -> list:
    import tritonclient.http

    with tritonclient.http.InferenceServerClient(server.http_address) as connection:
        return list(connection.get_system_shared_memory_status())
