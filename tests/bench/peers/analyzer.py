"""perf_analyzer 2.51, Triton's own load generator, out of the last tritonclient wheel that carries it."""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from oracle.child import CannotRun

from bench.peers.clients import Load, measured
from bench.peers.models import Model
from bench.peers.servers import Server

WINDOW_MS = 1000
WINDOWS_MAX = 6
PERCENTILE = 99


@dataclass(frozen=True)
class Analyzer:
    """An installed perf_analyzer."""

    program: Path
    libraries: str
    version: str

    @classmethod
    def find(cls, venv: Path) -> Analyzer:
        """What is in `venv`; libb64 is Debian's, of the system or unpacked under `venv`."""
        program = venv / "bin" / "perf_analyzer"
        folders = [*venv.glob("lib/python3*/site-packages/nvidia/*/lib"), *venv.glob("deb/usr/lib/*")]
        libraries = ":".join(str(folder) for folder in folders)
        if not program.is_file():
            raise CannotRun(f"perf_analyzer is not installed in {venv}")
        told = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )
        if told.returncode != 0:
            raise CannotRun(f"perf_analyzer does not start: {told.stderr.strip()} (Debian: libb64-0d)")
        return cls(program, libraries, (told.stdout + told.stderr).strip())

    def closed_loop(self, server: Server, model: Model, concurrency: int, prefix: list[str]) -> Load:
        """gRPC with `concurrency` requests in flight, in windows until three agree or the windows are used up."""
        with tempfile.TemporaryDirectory(prefix="analyzer-") as folder:
            data, table = Path(folder) / "data.json", Path(folder) / "table.csv"
            data.write_text(model.analyzer())
            command = [*prefix, "env", f"LD_LIBRARY_PATH={self.libraries}", str(self.program), "-m", model.name]
            command += ["-i", "grpc", "-u", server.grpc, "--async", "--concurrency-range", str(concurrency)]
            command += ["--input-data", str(data), "-p", str(WINDOW_MS), "-r", str(WINDOWS_MAX), "-s", "50"]
            command += ["--percentile", str(PERCENTILE), "-f", str(table)]
            raw, cpu, answered = measured(server, model.name, command, WINDOW_MS * WINDOWS_MAX / 1000)
            rows = list(csv.DictReader(table.open()))
        if len(rows) != 1:
            raise RuntimeError(f"perf_analyzer wrote {len(rows)} rows:\n{raw[-2000:]}")
        found = {key: float(value) for key, value in rows[0].items() if value}
        rate = found["Inferences/Second"]
        # Rate and percentiles are of the windows it trusts, answers and CPU time of its whole run.
        latency = {float(p): found[f"p{p} latency"] for p in (50, 90, 95, 99)}
        return Load(answered, answered / rate, 0, latency, cpu * 1e6 / max(answered, 1), raw)
