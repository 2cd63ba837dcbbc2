"""perf_analyzer 2.51 sends sequences to a model that keeps state: no request fails, and sums are right."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest
import tritonclient.http

from bench.peers.analyzer import Analyzer
from fixtures.tessera import Tessera
from windows import IN_WINDOWS

# Inputs of sequences. The model answers with the sum so far. perf_analyzer expects the right answers only if all are equally
# long, and at the end of a run it ends sequences early, with their last inputs.
SEQUENCES = [[1.0, 2.0], [10.0, 20.0], [0.5, -4.0]]
REQUESTS = 200
HTTP, GRPC = ["-i", "http", "--sync"], ["-i", "grpc", "--sync"]
STREAM = ["-i", "grpc", "--streaming", "--async"]
# Name -> options. The model has four slots: of eight sequences at a time, four wait. Without `--sync` and without a stream,
# perf_analyzer sends requests of a sequence at the same time, and they overtake each other, at Triton too.
RUNS = {
    "http": [*HTTP, "--concurrency-range", "4"],
    "http_waiting": [*HTTP, "--concurrency-range", "8"],
    "grpc": [*GRPC, "--concurrency-range", "4"],
    "grpc_waiting": [*GRPC, "--concurrency-range", "8"],
    "stream": [*STREAM, "--concurrency-range", "4"],
    "stream_waiting": [*STREAM, "--concurrency-range", "8"],
    "stream_serial": [*STREAM, "--concurrency-range", "8", "--serial-sequences"],
    "stream_rate": [*STREAM, "--request-rate-range", "200", "--num-of-sequences", "6"],
}


def data(folder: Path) -> Path:
    """perf_analyzer's file of inputs, and of the outputs that it expects."""
    inputs = [[{"INPUT": [value]} for value in sequence] for sequence in SEQUENCES]
    outputs = [[{"OUTPUT": [total]} for total in itertools.accumulate(sequence)] for sequence in SEQUENCES]
    file = folder / "data.json"
    file.write_text(json.dumps({"data": inputs, "validation_data": outputs}))
    return file


def run(analyzer: Analyzer, server: Tessera, options: list[str], table: Path) -> dict[str, str]:
    """The row that perf_analyzer writes."""
    address = server.http_address if "http" in options else server.grpc_address
    command = [str(analyzer.program), "-m", "sums", "-u", address, *options, "-f", str(table)]
    before = counts(server)
    done = subprocess.run(
        [*command, *IN_WINDOWS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": analyzer.libraries},
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert "error" not in output.lower(), output[-3000:]
    good, bad = (now - then for now, then in zip(counts(server), before))
    assert good >= REQUESTS and bad == 0
    (row,) = csv.DictReader(table.open())
    return row


def counts(server: Tessera) -> tuple[int, int]:
    """Requests that were answered, and others."""
    with tritonclient.http.InferenceServerClient(server.http_address) as connection:
        (stats,) = connection.get_inference_statistics("sums")["model_stats"]
    return stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]


@pytest.mark.parametrize("name", RUNS)
def test_sequences_of_any_length_are_answered(analyzer: Analyzer, server: Tessera, name: str, tmp_path: Path) -> None:
    """Random inputs, lengths of 8 to 12, and ids from a range, which are used again."""
    lengths = ["--sequence-length", "10", "--sequence-length-variation", "20", "--sequence-id-range", "1:17"]
    row = run(analyzer, server, [*RUNS[name], *lengths], tmp_path / "table.csv")
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.parametrize("name", ["http", "http_waiting", "grpc", "grpc_waiting"])
def test_every_answer_is_right(analyzer: Analyzer, server: Tessera, name: str, tmp_path: Path) -> None:
    """perf_analyzer compares each output with the sum. On a stream, it compares with that of the last request sent."""
    row = run(analyzer, server, [*RUNS[name], "--input-data", str(data(tmp_path))], tmp_path / "table.csv")
    assert float(row["Inferences/Second"]) > 0


def test_a_wrong_answer_would_be_noticed(analyzer: Analyzer, server: Tessera, tmp_path: Path) -> None:
    wrong = data(tmp_path)
    wrong.write_text(wrong.read_text().replace("[30.0]", "[31.0]"))
    with pytest.raises(AssertionError, match="doesn't match expected output"):
        run(analyzer, server, [*RUNS["http"], "--input-data", str(wrong)], tmp_path / "table.csv")
