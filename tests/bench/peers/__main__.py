"""Measures Tessera, Triton and MLServer on this machine, and writes docs/benchmarks.md. While other programs use more than 5 %
of a core, it waits and measures again; if they do not end, it keeps no figure of the model and exits with 1.

tests/run bench                        everything, about 20 minutes
tests/run bench --only magika          one of identity, magika, squeezenet, minilm_int8; repeatable, the rest is kept
tests/run bench --scale quick          a look, a few minutes; writes no document
tests/run bench --scale thorough       longer trials, every setting at every objective; about 75 minutes
tests/run bench --render               the document again, from what is in tests/bench/results
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from oracle import triton
from oracle.child import CannotRun

from bench.peers import capacity, clients, document, experiment, models, others, record, servers
from bench.peers.analyzer import Analyzer

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tests" / "bench" / "results"


def find(what: str, look: object, venv: Path) -> object | None:
    try:
        return look(venv)
    except CannotRun as reason:
        print(f"without {what}: {reason}", file=sys.stderr)
        return None


def mlserver_venv(venv: Path) -> Path:
    if not (venv / "bin" / "mlserver").is_file():
        raise CannotRun(f"it is not installed in {venv}")
    return venv


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / "target" / "venv", help="folder of the environments")
    parser.add_argument("--zoo", type=Path, default=ROOT / "target" / "zoo", help="repository filled by models/zoo.py")
    parser.add_argument("--only", action="append", choices=list(models.ALL), help="repeatable; default: all")
    parser.add_argument("--scale", choices=list(experiment.SCALES), default="full", help="how long and how much")
    parser.add_argument("--render", action="store_true", help="only write the document, from the newest results")
    parser.add_argument("--minutes", type=float, help="no search for capacity starts later; default: by scale")
    arguments = parser.parse_args()
    if arguments.render:
        newest = max((path for path in RESULTS.iterdir() if (path / "machine.json").is_file()), default=None)
        if newest is None:
            parser.error(f"nothing measured yet under {RESULTS}")
        document.write(record.Results(newest), ROOT)
        return 0
    clients.need_tools()
    # A person or a supervisor who ends this run ends the servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    places = servers.Places(
        arguments.venv / "oracle" if find("Triton", triton.Installation.find, arguments.venv / "oracle") else None,
        find("MLServer", mlserver_venv, arguments.venv / "mlserver"),
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        scale, quick = experiment.SCALES[arguments.scale], arguments.scale == "quick"
        today = Path(folder) / "results" if quick else RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        bench = experiment.Bench(
            places=places,
            analyzer=find("perf_analyzer", Analyzer.find, arguments.venv / "perf_analyzer"),
            scale=scale,
            results=record.Results(Path(folder) / "pending"),
            clock=experiment.Clock(arguments.minutes or scale.minutes),
            command=told(arguments),
            folder=Path(folder),
        )
        kept = record.Results(today)
        try:
            measure(bench, kept, arguments.only or list(models.ALL), arguments.zoo)
        except others.NotQuietError as reason:
            print(f"error: {reason}; end them and run the benchmark again", file=sys.stderr)
            return 1
        if quick:
            print(document.text(kept))
            return 0
        document.write(kept, ROOT)
    bench.clock.say(f"done; raw output in {today.relative_to(ROOT)}, tables in docs/benchmarks.md")
    return 0


def told(arguments: argparse.Namespace) -> str:
    """The command as a person would give it again, on any machine."""
    only = [word for name in arguments.only or [] for word in ("--only", name)]
    scale = [] if arguments.scale == "full" else ["--scale", arguments.scale]
    minutes = [] if arguments.minutes is None else ["--minutes", f"{arguments.minutes:g}"]
    return " ".join(["tests/run", "bench", *only, *scale, *minutes])


def measure(bench: experiment.Bench, kept: record.Results, wanted: list[str], zoo: Path) -> None:
    """Keeps the figures of a model once all of them are measured."""
    if capacity.why_not():
        bench.clock.say(f"no capacity at SLO: {capacity.why_not()}")
    machine = {**record.machine(), **versions(bench)}
    for name in wanted:
        model = models.ALL[name](bench.folder, zoo)
        bench.results.begin(name)
        bench.results.save(experiment.run(bench, model))
        kept.save_machine(machine)
        kept.take(bench.results, name)


def versions(bench: experiment.Bench) -> dict[str, object]:
    """Who took part, and with which ONNX Runtime."""
    binary = os.environ["TESSERA_BIN"]
    told = {"tessera": subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()}
    libraries = {"tessera": Path(os.environ["ORT_DYLIB_PATH"])}
    for name, venv, package in (
        ("triton", bench.places.oracle, "nvidia_pytriton"),
        ("mlserver", bench.places.mlserver, "mlserver"),
    ):
        if venv is not None:
            info = next(venv.glob(f"lib/python3*/site-packages/{package}-*.dist-info"))
            told[name] = info.name.removesuffix(".dist-info").replace("-", " ")
            libraries[name] = next(venv.glob("lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    for tool in ("wrk", "h2load"):
        asked = subprocess.run(
            [tool, "--version" if tool == "h2load" else "-v"], capture_output=True, text=True, check=False
        )
        told[tool] = (asked.stdout + asked.stderr).splitlines()[0]
    if bench.analyzer is not None:
        told["perf_analyzer"] = bench.analyzer.version
    runtimes = {name: f"{path.name} {record.digest(path)[:16]}" for name, path in libraries.items()}
    return {"versions": told, "onnxruntime": runtimes}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
