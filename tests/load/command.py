"""Runs the `tessera load` command."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Exit codes: success; error; wrong usage; success, but the client could not keep up; interrupted.
RAN, FAILED, MISUSED, LATE, STOPPED = 0, 1, 2, 3, 130
# Time limit of a command.
SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    said: str

    def report(self) -> dict:
        """The JSON report of a successful run, including runs in which this machine was late."""
        assert self.code in (RAN, LATE), f"ended with {self.code}: {self.said}"
        return json.loads(self.out)


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [os.environ["TESSERA_BIN"], "load", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Outcome:
    try:
        out, said = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Outcome(process.returncode, out, said)


def load(*arguments: object) -> Outcome:
    return finish(start(*arguments))


def run(url: str, *arguments: object) -> dict:
    """The report of a short run. The default objective is long enough for a busy machine."""
    wide = [] if "--slo" in arguments or any(str(a).endswith(".toml") for a in arguments) else ["--slo", "20s"]
    return load("--url", url, *wide, "--json", *arguments).report()


def assert_all_answered(report: dict) -> None:
    total = report["total"]
    told = {key: total[key] for key in ("offered", "answered", "refused", "failed")}
    assert total["offered"] > 0 and total["answered"] == total["offered"], (told, report["said"])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
