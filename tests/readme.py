#!/usr/bin/env python3
"""Runs the commands of the README from the root of the checkout, as a new user would.

Uses the ports in the README, and fails with a message if another program holds them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from fixtures.wait import until

ROOT = Path(__file__).resolve().parent.parent
READY = "http://127.0.0.1:8000/v2/health/ready"
BUILD_SECONDS = 1200  # the first build on two cores


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


def ready() -> bool:
    try:
        with urllib.request.urlopen(READY, timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def without_spaces(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def output_of(part: str, codes: tuple[int, ...] = (0,)) -> str:
    """Runs the README's command that contains `part`. It must write one plot, to a temporary folder."""
    command = next(block.strip() for block in blocks() if part in block)
    with tempfile.TemporaryDirectory() as folder:
        words = [str(Path(folder) / word) if re.fullmatch(r"\w+\.(html|svg)", word) else word for word in command.split()]
        answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS)
        assert answer.returncode in codes, answer.stderr[-2000:]
        (plot,) = Path(folder).iterdir()
        assert "<svg" in plot.read_text()
    return answer.stdout


def simulate() -> None:
    """The table of policies is the one in the README."""
    shown = re.search(r"```text\n(ten-models: .*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert shown, "the README contains no comparison of policies"
    printed = set(without_spaces(output_of(" simulate ")))
    missing = [line for line in without_spaces(shown.group(1)) if line not in printed and line != "..."]
    assert not missing, f"in the README, but not in the output: {missing}"


def plan() -> None:
    """The plan needs six devices, as in iGniter's paper."""
    printed = output_of(" -- plan ")
    assert "devices needed: 6 of 12" in printed, printed


def load() -> None:
    """The load generator gets right answers from the running server."""
    # 3: the machine was too busy for the client to keep up.
    printed = output_of(" -- load ", codes=(0, 3))
    row = next(line.split() for line in printed.splitlines() if line.startswith("digits "))
    refused, failed = row[-2:]
    assert (refused, failed) == ("0", "0"), printed


def serve() -> None:
    """The first command serves the first request, then the load, and exits with 0 after SIGTERM."""
    run, request = (block.strip() for block in blocks()[:2])
    assert run == "cargo run --release" and request.startswith("curl "), (run, request)
    assert not ready(), "another server uses port 8000"
    server = subprocess.Popen(run.split(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:

        def is_ready() -> bool:
            assert server.poll() is None, server.communicate()
            return ready()

        until(is_ready, "the server is ready", BUILD_SECONDS)
        answer = subprocess.run(request, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=30)
        outputs = {output["name"]: output["data"] for output in json.loads(answer.stdout)["outputs"]}
        assert outputs["digit"] == [7], outputs
        assert max(range(10), key=outputs["probabilities"].__getitem__) == 7, outputs
        load()
        # cargo does not pass signals to the server.
        children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True).stdout.split()
        subprocess.run(["kill", "-TERM", *(children or [str(server.pid)])], check=True)
        out, err = server.communicate(timeout=40)
    finally:
        if server.poll() is None:
            server.kill()
    printed = next(line.strip() for line in out.splitlines() if line.strip().startswith("curl "))
    assert "/v2/models/digits/infer" in printed, out
    assert server.returncode == 0, (server.returncode, err[-2000:])


def main() -> int:
    failed = 0
    for check in (serve, simulate, plan):
        try:
            check()
        except AssertionError as error:
            failed += 1
            print(f"FAIL readme {check.__name__}: {error}")
    print(f"readme: {3 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
