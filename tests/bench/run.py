#!/usr/bin/env python3
"""Measure Tessera beside a real Triton (Python backend, same onnxruntime) on this machine, in one run.

    TESSERA_BIN=... bench/run.py --zoo DIR --oracle-venv DIR [--only identity|magika|image|memory]

identity  f32[N,16]; the server pinned to core 0, the client to core 1; wrk for HTTP binary, h2load for gRPC
magika    a compute-bound model at concurrency 8: our default, batching forced, batching off; Triton with and without
image     602 KB over HTTP binary into squeezenet, against the compute time that the server reports
memory    idle, with the identity model loaded, against the engine alone

Raw output goes to tests/bench/results/<date>/, a table in Markdown to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import platform
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from oracle import triton  # noqa: E402

from bench import experiments, load  # noqa: E402

HERE = Path(__file__).resolve().parent


class Report:
    """Collects tables, and keeps what the tools printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def heading(self, text: str) -> None:
        self._write(f"\n### {text}\n")

    def row(self, *cells: object) -> None:
        self._write("| " + " | ".join(str(cell) for cell in cells) + " |")

    def header(self, *cells: str) -> None:
        self.row(*cells)
        self._write("|" + "---|" * len(cells))

    def keep(self, name: str, raw: str) -> None:
        (self.folder / f"{re.sub('[^a-z0-9]+', '-', name).strip('-')}.txt").write_text(raw)

    def _write(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)

    def close(self) -> None:
        (self.folder / "summary.md").write_text("\n".join(self.lines) + "\n")


def machine() -> dict[str, str]:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "?",
    )
    return {"cpu": model, "kernel": platform.release(), "python": platform.python_version()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="repository filled by models/zoo.py")
    parser.add_argument("--oracle-venv", type=Path, help="environment with nvidia-pytriton; left out, Tessera alone")
    parser.add_argument("--only", action="append", choices=list(experiments.ALL), help="repeatable; default: all")
    parser.add_argument("--seconds", type=int, default=5, help="of each identity measurement")
    arguments = parser.parse_args()
    load.need_tools()
    oracle = None
    if arguments.oracle_venv:
        try:
            triton.Installation.find(arguments.oracle_venv)
            oracle = arguments.oracle_venv
        except triton.CannotRun as reason:
            print(f"without Triton: {reason}")
    report = Report(HERE / "results" / datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"))
    report.keep("machine", json.dumps(machine(), indent=2))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.closing(report):
        setting = experiments.Setting(Path(folder), arguments.zoo, oracle, arguments.seconds, report)
        for name in arguments.only or experiments.ALL:
            experiments.ALL[name](setting)
    print(f"\nbench: done; raw output in {report.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
