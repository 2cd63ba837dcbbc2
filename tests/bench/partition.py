#!/usr/bin/env python3
"""Records a server that repartitions its cores while the mix of its models changes, and writes docs/partition/.

    tests/run partition         real models, two core gpulets, two minutes

Needs a machine without other load: client and server share its cores.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from html import escape
from pathlib import Path

from fixtures.partition import view
from fixtures.tessera import Tessera

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "partition"
WORKLOAD = Path("loadtest/partition/shifting-mix.toml")
MODELS = {
    "magika": "max_batch = 8",
    "squeezenet_batched": "max_batch = 4\nfree_batch = true",
    "minilm_int8": "max_batch = 8",
}
OBJECTIVES = {"magika": "250ms", "squeezenet_batched": "300ms", "minilm_int8": "400ms"}
COLOURS = {"magika": "#2f9e6e", "squeezenet_batched": "#5b8def", "minilm_int8": "#d9822b"}
INK, FAINT = "#7d8590", "#7d859055"
WIDTH, LEFT, RIGHT = 860, 70, 20
POLL_S = 0.5


def settings(objectives: dict[str, str], partition: str = "") -> str:
    """A tessera.toml with two lanes on two cores; `partition` is the section of that name."""
    models = "".join(f'[models.{name}]\nslo = "{objectives[name]}"\n{keys}\n' for name, keys in MODELS.items())
    return f"[lanes]\ncores = [[0], [1]]\n{partition}\n{models}"


def prepare(zoo: Path, folder: Path, objectives: dict[str, str]) -> tuple[Path, Path]:
    """A repository of the models, and their profile on this machine; only missing cells are measured."""
    repository = folder / "models"
    for model in MODELS:
        shutil.copytree(zoo / model, repository / model)
    config = folder / "settings.toml"
    config.write_text(settings(objectives))
    profile = ROOT / "target" / "partition-profile.jsonl"
    command = [os.environ["TESSERA_BIN"], "profile", "--repository", str(repository), "--config", str(config)]
    command += ["--out", str(profile), "--time", "500ms"]
    for model in MODELS:
        command += ["--model", model]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900)
    return repository, profile


class Recorder(threading.Thread):
    """Records the state of the partition every half second until `stop`."""

    def __init__(self, server: Tessera) -> None:
        super().__init__()
        self.seen: list[tuple[float, dict]] = []
        self._server = server
        self._stopped = threading.Event()
        self.began = time.time()

    def run(self) -> None:
        while not self._stopped.wait(POLL_S):
            self.seen.append((time.time() - self.began, view(self._server)))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def scale(values: list[float], low: float, high: float):
    most = max([*values, 1e-9])
    return lambda value: high - (high - low) * min(value / most, 1.0)


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def line(points: list[tuple[float, float]], colour: str, more: str = "") -> str:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" {more}/>'


def panel_axis(parts: list[str], top: float, bottom: float, title: str, most: float, unit: str) -> None:
    parts.append(text(LEFT, top - 8, title))
    parts.append(f'<path d="M{LEFT} {top}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="{FAINT}"/>')
    parts.append(text(LEFT - 6, top + 10, f"{most:g}{unit}", "end"))
    parts.append(text(LEFT - 6, bottom, "0", "end"))


def picture(seen: list[tuple[float, dict]], seconds: list[dict[str, str]], offset: float, units: int) -> str:
    end = max([at for at, _ in seen] + [offset + len(seconds)])
    x = lambda at: LEFT + (WIDTH - LEFT - RIGHT) * at / end  # noqa: E731
    parts: list[str] = []
    for at, model in enumerate(MODELS):
        parts.append(f'<rect x="{LEFT + 190 * at}" y="8" width="10" height="10" fill="{COLOURS[model]}"/>')
        parts.append(text(LEFT + 16 + 190 * at, 17, model))
    rates = {model: [(at, row["rate"]) for at, view in seen for row in view["models"] if row["name"] == model] for model in MODELS}
    most = max(rate for series in rates.values() for _, rate in series)
    y = scale([most], 54, 174)
    panel_axis(parts, 54, 174, "requests per second (dashed: planned rate)", round(most), "")
    for model in MODELS:
        parts.append(line([(x(at), y(rate)) for at, rate in rates[model]], COLOURS[model]))
        targets = [(at, row["target"]) for at, view in seen for row in view["models"] if row["name"] == model]
        parts.append(line([(x(at), y(target)) for at, target in targets], COLOURS[model], 'stroke-opacity="0.5" stroke-dasharray="3 3"'))
    parts.append(text(LEFT, 206, "the plan: cores from top to bottom, with the models of each gpulet"))
    height = 40
    for (at, view), (until, _) in zip(seen, [*seen[1:], (end, {})]):
        for gpulet in view["gpulets"]:
            top = 214 + height * gpulet["first_unit"]
            share = sum(slot["budget_us"] for slot in gpulet["slots"]) or 1.0
            left = top
            for slot in gpulet["slots"]:
                tall = (height * gpulet["units"] - 3) * slot["budget_us"] / share
                parts.append(
                    f'<rect x="{x(at):.2f}" y="{left:.1f}" width="{x(until) - x(at) + 0.3:.2f}" height="{tall:.1f}" '
                    f'fill="{COLOURS[slot["workload"]]}" fill-opacity="0.75"/>'
                )
                left += tall
    bottom = 214 + height * units
    for (_, before), (at, view) in zip(seen, seen[1:]):
        if view["epoch"] != before["epoch"]:
            parts.append(f'<path d="M{x(at):.1f} 54V{bottom + 150}" stroke="{INK}" stroke-dasharray="2 4" fill="none"/>')
    top = bottom + 34
    of_slo = [(offset + int(row["second"]), float(row["p99_of_slo"])) for row in seconds if row["p99_of_slo"]]
    y = scale([max(1.5, max((share for _, share in of_slo), default=0.0))], top, top + 110)
    panel_axis(parts, top, top + 110, "99th percentile of latency divided by the objective, per second", round(max(1.5, max((s for _, s in of_slo), default=0)), 1), "")
    parts.append(f'<path d="M{LEFT} {y(1.0):.1f}H{WIDTH - RIGHT}" stroke="#c8374a" stroke-dasharray="5 3"/>')
    parts.append(text(WIDTH - RIGHT, y(1.0) - 4, "objective", "end", "#c8374a"))
    parts.append(line([(x(at), y(share)) for at, share in of_slo], INK))
    for mark in range(0, int(end) + 1, 10):
        parts.append(text(x(mark), top + 126, str(mark), "middle"))
    parts.append(text(WIDTH - RIGHT, top + 142, "seconds", "end"))
    tall = top + 150
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall:.0f}" width="{WIDTH}" height="{tall:.0f}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="12">\n<title>Gpulets that follow the load</title>\n'
        + "\n".join(parts) + "\n</svg>\n"
    )


def document(seen: list[tuple[float, dict]], report: dict, load: float) -> str:
    last = seen[-1][1]
    changes = [entry for entry in last["history"] if entry["kind"] in ("switched", "rolled_back")]
    lines = [
        "<!-- Generated by `tests/run partition`: edit tests/bench/partition.py, not this page. -->",
        "# A recorded run",
        "",
        f"`tessera serve` with three real models on two cores, and `tessera load {WORKLOAD}`, "
        f"measured {datetime.date.today()} with a load average of {load:.2f} before the run.",
        "",
        "![rates, plan and latency over time](record.svg)",
        "",
        "A dashed line marks a change of the plan.",
        "",
        "| | |",
        "| --- | --- |",
        f"| requests | {report['offered']:,} offered, {report['answered']:,} answered, {report['good']:,} within the objective |",
        f"| refused | {json.dumps(report['refused'])} |",
        f"| failed | {json.dumps(report['failed'])} |",
        f"| plans | {last['epoch']} |",
        "",
        "Changes, as reported by `GET /v2/partition`:",
        "",
        "```text",
        *(f"{entry['at_us'] / 1e6:8.1f} s  {entry['message']}" for entry in changes),
        "```",
        "",
        "Changes of the planned rates, with reasons:",
        "",
        "```text",
        *(
            f"{row['at_us'] / 1e6:8.1f} s  {row['model']}: {row['from']:.1f} -> {row['to']:.1f}/s: {row['reason']}"
            for row in last["decisions"]
        ),
        "```",
        "",
        "Batch times in milliseconds, predicted by the profile and measured while serving:",
        "",
        "| model | rows | batches | predicted median | measured mean |",
        "| --- | --: | --: | --: | --: |",
    ]
    for model in last["models"]:
        for batch in model["batches"]:
            predicted = batch.get("predicted_p50_us")
            shown = "-" if predicted is None else f"{predicted / 1e3:.1f}"
            lines.append(
                f"| `{model['name']}` | {batch['rows']} | {batch['count']} | {shown} | {batch['measured_mean_us'] / 1e3:.1f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="repository filled by models/zoo.py")
    zoo = parser.parse_args().zoo.resolve()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tessera-partition-") as folder:
        repository, profile = prepare(zoo, Path(folder), OBJECTIVES)
        live = f'[partition]\nlive = true\nprofiles = ["{profile}"]\n'
        rows = Path(folder) / "seconds.csv"
        with Tessera(repository, settings(OBJECTIVES, live)) as server:
            server.wait_ready()
            recorder = Recorder(server)
            recorder.start()
            offset = time.time() - recorder.began
            command = [os.environ["TESSERA_BIN"], "load", str(WORKLOAD), "--url", server.base_url, "--json", "--csv", str(rows)]
            # The shapes of the profile.
            for name in ("input_ids", "attention_mask", "token_type_ids"):
                command += ["--shape", f"{name}=1,32"]
            done = subprocess.run(["chrt", "-f", "1", *command], cwd=ROOT, capture_output=True, text=True, timeout=600)
            recorder.stop()
        if done.returncode != 0:
            raise SystemExit(f"error: tessera load ended with {done.returncode}: {done.stderr}")
        report = json.loads(done.stdout)["total"]
        seconds = list(csv.DictReader(rows.open()))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "record.svg").write_text(picture(recorder.seen, seconds, offset, 2))
    (FOLDER / "record.md").write_text(document(recorder.seen, report, load))
    print(f"partition: {report['offered']} requests, {report['good']} in time; docs/partition/record.md", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
