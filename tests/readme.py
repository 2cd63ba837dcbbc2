#!/usr/bin/env python3
"""Runs the README as a stranger would: its first command, its first request, its load, its simulation, its plan, from the root of the checkout.

Uses the fixed ports that the README promises, so it fails, and says so, when something else holds them.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY = "http://127.0.0.1:8000/v2/health/ready"
START_SECONDS = 1200  # the first build on two cores


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


def ready() -> bool:
    try:
        with urllib.request.urlopen(READY, timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def drawn(part: str, codes: tuple[int, ...] = (0,)) -> str:
    """What the README's command with this part prints; the picture that it writes must be one."""
    command = next(block.strip() for block in blocks() if part in block)
    with tempfile.TemporaryDirectory() as folder:
        words = [str(Path(folder) / word) if re.fullmatch(r"\w+\.(html|svg)", word) else word for word in command.split()]
        answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=START_SECONDS)
        assert answer.returncode in codes, answer.stderr[-2000:]
        (picture,) = Path(folder).iterdir()
        assert "<svg" in picture.read_text()
    return answer.stdout


def simulation() -> None:
    """The comparison that the README shows, row for row."""
    shown = re.search(r"```text\n(ten-models: .*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert shown, "the README shows no comparison"
    printed = set(squeezed(drawn(" simulate ")))
    missing = [line for line in squeezed(shown.group(1)) if line not in printed and line != "..."]
    assert not missing, f"the README says and the command does not: {missing}"


def planned() -> None:
    """The README's plan: the six devices that iGniter's paper needs for its twelve workloads, and a picture of them."""
    printed = drawn(" -- plan ")
    assert "devices needed: 6 of 12" in printed, printed


def measured() -> None:
    """The README's run of the load generator, against the server that its first command started."""
    # 3: it ran, and this machine was too busy for the client to keep up.
    printed = drawn(" -- load ", codes=(0, 3))
    row = next(line.split() for line in printed.splitlines() if line.startswith("digits "))
    refused, failed = row[-2:]
    assert (refused, failed) == ("0", "0"), printed


def main() -> int:
    run, request = (block.strip() for block in blocks()[:2])
    assert run == "cargo run --release" and request.startswith("curl "), (run, request)
    if ready():
        print("error: something already serves on port 8000", file=sys.stderr)
        return 1
    server = subprocess.Popen(run.split(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if server.poll() is not None or time.monotonic() > deadline:
                print("error: the server did not come up", file=sys.stderr)
                return 1
            time.sleep(0.05)  # an interval between questions, bounded above, not a wait for an answer
        answer = subprocess.run(request, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=30)
        outputs = {output["name"]: output["data"] for output in json.loads(answer.stdout)["outputs"]}
        assert outputs["digit"] == [7], outputs
        assert max(range(10), key=outputs["probabilities"].__getitem__) == 7, outputs
        measured()
        pid = int(subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True).stdout or server.pid)
        server.send_signal(signal.SIGTERM) if pid == server.pid else subprocess.run(["kill", "-TERM", str(pid)])
        out, err = server.communicate(timeout=40)
    finally:
        if server.poll() is None:
            server.kill()
    pasted = next(line.strip() for line in out.splitlines() if line.strip().startswith("curl "))
    assert "/v2/models/digits/infer" in pasted, out
    assert server.returncode == 0, (server.returncode, err[-2000:])
    simulation()
    planned()
    print("readme: the first command serves, the first request is answered (digit 7), the load is, SIGTERM exits 0; simulation and plan too")
    return 0


if __name__ == "__main__":
    sys.exit(main())
