#!/usr/bin/env python3
"""All configurations of `tessera tune` for three models, measured several times, for the comparison of searches in docs/tuning.md.

    tests/run tuning-grids [--rounds N] [--time T]      2 to 4 minutes for each model and round, on an idle machine

Each round measures all configurations of all models, so that what disturbs one round for minutes does not disturb the others. Writes
gpulet/tuning/data/MODEL.csv after each round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"rapidocr_cls": ["--shape", "x=3x48x192"], "mtcnn_rnet": [], "mtcnn_onet": []}
CONFIGURATION = ["engine", "lanes", "threads", "level", "spinning", "batch"]
RESULT = ["p99_us", "rows_per_s", "runs"]


def steal() -> float:
    """Seconds of all cores that other virtual machines took."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def grid(model: str, zoo: Path, trial: str, folder: Path) -> list[dict]:
    trials = folder / f"{model}.jsonl"
    command = [os.environ["TESSERA_BIN"], "tune", model, "--repository", str(zoo), "--slo", "10s", "--search", "grid"]
    command += ["--set", f"models.{model}.max_batch=32", "--budget", "10000", "--time", trial]
    command += ["--grid", str(trials), "--out", str(folder / "tuned.toml")]
    subprocess.run([*command, *MODELS[model]], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in trials.read_text().splitlines()]
    trials.unlink()
    cells = [line["cell"] for line in lines if "cell" in line]
    return [cell for cell in cells if "failed" not in cell]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--time", default="150ms", help="time of a trial")
    parser.add_argument("--out", type=Path, default=ROOT / "gpulet/tuning/data")
    options = parser.parse_args()
    rows: dict[str, list[str]] = {model: [] for model in MODELS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, options.rounds + 1):
            for model, of_model in rows.items():
                started, stolen = time.monotonic(), steal()
                for cell in grid(model, options.zoo, options.time, Path(folder)):
                    values = [json.dumps(cell[field]).strip('"') for field in [*CONFIGURATION, *RESULT]]
                    of_model.append(",".join([str(number), *values]))
                took, stolen = time.monotonic() - started, steal() - stolen
                print(f"round {number}: {model}: {took:.0f} s, {stolen:.1f} s stolen by other machines", flush=True)
                text = "\n".join([",".join(["round", *CONFIGURATION, *RESULT]), *of_model]) + "\n"
                (options.out / f"{model}.csv").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
