#!/usr/bin/env python3
"""Runs the commands of the README from the root of the checkout, as a new user would.

Uses the ports in the README, and fails with a message if another program holds them.
"""

from __future__ import annotations

import json
import os
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
BINARY = ROOT / "target" / "release" / "tessera"
FETCH_SECONDS = 300
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


def libraries() -> dict[str, dict[str, str]]:
    """Environments with and without ONNX Runtime, which `tests/run setup` installs."""
    venv = Path(os.environ.get("TESSERA_VENV", ROOT / "target" / "venv"))
    found = sorted(venv.glob("client/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    assert found, "no ONNX Runtime: run tests/run setup first"
    own = {name: value for name, value in os.environ.items() if name not in ("ORT_DYLIB_PATH", "VIRTUAL_ENV")}
    # Python is where Tessera looks for the library.
    without = {**own, "PATH": str(BINARY.parent)}
    return {"ort": {**own, "ORT_DYLIB_PATH": str(found[0])}, "tract": without}


def own_models() -> None:
    """The models of the walk-through are checked, become ready and answer, with ONNX Runtime and without."""
    request = next(block for block in blocks() if "models/magika/infer" in block)
    fetch, check, run = (line.split("#")[0].split() for line in next(b for b in blocks() if "zoo.py" in b).splitlines())
    assert not ready(), "another server uses port 8000"
    with tempfile.TemporaryDirectory() as folder:

        def words(line: list[str]) -> list[str]:
            return [re.sub(r"^zoo\b", f"{folder}/zoo", word) for word in line]

        subprocess.run(words(fetch), cwd=ROOT, check=True, timeout=FETCH_SECONDS, capture_output=True)
        for engine, environment in libraries().items():
            # `cargo run --release --` runs this binary.
            found = subprocess.run(
                [BINARY, *words(check)[4:]], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
            )
            assert found.returncode == 0 and f"loads on engine `{engine}`" in found.stdout, found.stdout + found.stderr
            server = subprocess.Popen(
                [BINARY, *words(run)[4:]], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                until(ready, f"the server with {engine} is ready", 120)
                assert server.poll() is None, f"the server with {engine} ended"
                answer = subprocess.run(request, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=30)
                (output,) = json.loads(answer.stdout)["outputs"]
                assert (output["name"], output["shape"], len(output["data"])) == ("target_label", [1, 214], 214), output
            finally:
                server.terminate()
                code = server.wait(40)
            assert code == 0, f"the server with {engine} ended with {code}"


def main() -> int:
    failed = 0
    checks = (serve, simulate, plan, own_models)
    for check in checks:
        try:
            check()
        except AssertionError as error:
            failed += 1
            print(f"FAIL readme {check.__name__}: {error}")
    print(f"readme: {len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
