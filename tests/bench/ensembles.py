"""CPU time that an ensemble costs besides its models, on Tessera and on a real Triton with the same repository.

    tests/run ensembles         two minutes

Both servers answer the same requests, one at a time: to a model, and to chains of it with 2 and 4 steps. What a step more costs is the
difference between the chains, by the CPU time of the server's process. Triton's models run in processes of their own, which do not count;
Tessera's model, which copies a few numbers, does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tritonclient.grpc as tgrpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import models  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from oracle.triton import Triton  # noqa: E402
from triton.test_ensembles import ensemble, step, tensor  # noqa: E402

STEPS = (2, 4)


def chain(steps: int) -> str:
    names = ["in", *(f"t{number}" for number in range(1, steps)), "out"]
    io = tensor("input", "in") + tensor("output", "out")
    parts = (step("copy", {"INPUT0": left}, {"OUTPUT0": right}) for left, right in zip(names, names[1:], strict=False))
    return ensemble(*parts, io=io)


def write(folder: Path) -> None:
    models.place(folder, "copy", models.identity("FP32", ["N", 4]))
    (folder / "copy" / "config.pbtxt").write_text('backend: "onnxruntime"\nmax_batch_size: 8\n')
    for steps in STEPS:
        (folder / f"chain{steps}" / "1").mkdir(parents=True)
        (folder / f"chain{steps}" / "config.pbtxt").write_text(chain(steps))


def cpu_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def cost(address: str, pid: int, model: str, requests: int) -> float:
    """Microseconds of CPU time for each request."""
    client = tgrpc.InferenceServerClient(address)
    name = "INPUT0" if model == "copy" else "in"
    one = tgrpc.InferInput(name, [1, 4], "FP32")
    one.set_data_from_numpy(np.ones((1, 4), np.float32))
    for _ in range(requests // 10):
        client.infer(model, [one])
    before = cpu_us(pid)
    for _ in range(requests):
        client.infer(model, [one])
    return (cpu_us(pid) - before) / requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=5_000)
    requests = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        triton = Triton.on_free_ports(Path(os.environ["ORACLE_VENV"]), Path(folder), [])
        with triton, Tessera(Path(folder), '[repository]\nengine = "ort"\n') as tessera:
            tessera.wait_ready(60)
            triton.wait_ready(120.0)
            print("| server | one model | 2 steps | 4 steps | a step more |")
            print("|---|---|---|---|---|")
            for name, server, pid in (("Tessera", tessera, tessera.pid), ("Triton", triton, triton.process.pid)):
                costs = [cost(server.grpc_address, pid, model, requests) for model in ("copy", "chain2", "chain4")]
                cells = [f"{value:.0f}" for value in (*costs, (costs[2] - costs[1]) / 2)]
                print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
