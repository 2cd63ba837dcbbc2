"""Programs that the tests of packaging run, with their output in the failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, seconds: float = 120.0, **environment: str) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def need(*programs: str) -> None:
    """Skips the test if a program is missing. The stage has tried to install it and has said why it could not."""
    if missing := [program for program in programs if not shutil.which(program)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
