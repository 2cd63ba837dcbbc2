"""Successful runs: every protocol and encoding, every way to define requests, every output."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from fixtures.tessera import Tessera
from load.command import LATE, RAN, assert_all_answered, load, run, write

SHORT = ("--duration", "500ms", "--warmup", "100ms", "--rate", "60", "--arrivals", "uniform")

WORKLOAD = """
name = "two"
seed = 3
duration = "1s"
warmup = "200ms"
[models.one]
slo = "20s"
rate = 40.0
rows = [[1, 0.5], [3, 0.5]]
[models.pair]
count = 2
slo = "20s"
rate = 20.0
arrivals = { process = "uniform" }
priority = 1
"""


def sample(model_input: str, datatype: str, values: list, output: str | None = None, expected: list | None = None) -> str:
    tensor = {"name": model_input, "datatype": datatype, "shape": [1, len(values)], "data": values}
    line: dict[str, object] = {"inputs": [tensor]}
    if output is not None:
        line["expect"] = [{"name": output, "datatype": datatype, "shape": [1, len(values)], "data": expected}]
    return json.dumps(line)


# gRPC has no JSON encoding.
@pytest.mark.parametrize(
    ("protocol", "tensors"),
    [("http", "binary"), ("http", "json"), ("http2", "binary"), ("http2", "json"), ("grpc", "binary")],
)
def test_every_protocol_and_encoding(urls: dict[str, str], protocol: str, tensors: str) -> None:
    report = run(urls[protocol], "--model", "digits", "--tensors", tensors, "--threads", 2, *SHORT)
    assert_all_answered(report)
    target = report["target"]
    assert (target["protocol"], target["tensors"]) == (protocol, tensors) and target["server"].startswith("tessera ")
    assert report["total"]["offered"] == 24, "0.4 s at 60/s after the warm-up"
    assert sum(second["offered"] for second in report["seconds"]) == 30
    model = report["models"][0]
    assert model["name"] == model["served_as"] == "digits"
    assert sum(size["rows"] * size["batches"] for size in model["batches"]) == 30, "the server's own count"
    assert model["server"]["requests"] == 30 and model["server"]["total_ms"] > 0
    assert report["driven"] == {"loop": "open"} and not report["interrupted"] and report["client"]["threads"] == 2


def test_a_workload_file_with_other_model_names(urls: dict[str, str], tmp_path: Path) -> None:
    workload = write(tmp_path / "two.toml", WORKLOAD)
    names = ("--map", "one=digits", "--map", "pair=simple", "--map", "pair-1=identity_fp32", "--shape", "INPUT0=1,16")
    reports = [run(urls[protocol], workload, *names) for protocol in urls]
    for report in reports:
        assert_all_answered(report)
        served = {model["name"]: model["served_as"] for model in report["models"]}
        assert served == {"one": "digits", "pair-0": "simple", "pair-1": "identity_fp32"}
        assert report["warmup_s"] == 0.2 and report["measured_s"] == 0.8
    offered = [[model["figures"]["offered"] for model in report["models"]] for report in reports]
    assert offered[0] == offered[1] == offered[2] and offered[0][1:] == [16, 16], "the file and its seed decide what is offered"
    other = run(urls["http"], workload, *names, "--seed", 4)
    faster = run(urls["http"], workload, *names, "--rate-scale", 3)
    assert other["seed"] == 4 and faster["models"][1]["figures"]["offered"] == 48


def test_payloads_have_the_given_shapes_and_values(urls: dict[str, str]) -> None:
    for protocol, model, shape in (
        ("http", "identity_fp32", "INPUT0=1,7"),
        ("grpc", "identity_int64", "identity_int64/INPUT0=1,3"),
        ("http2", "identity_bytes", "INPUT0=1,5"),
    ):
        given = ("--range", "INPUT0=5..5") if model != "identity_bytes" else ()
        assert_all_answered(run(urls[protocol], "--model", model, "--shape", shape, "--rows", 2, *given, *SHORT))


@pytest.mark.parametrize("protocol", ["http", "http2", "grpc"])
def test_samples_with_expected_outputs(urls: dict[str, str], tmp_path: Path, protocol: str) -> None:
    right = sample("INPUT0", "FP32", [1.5, 2.5], "OUTPUT0", [1.5, 2.5])
    near = sample("INPUT0", "FP32", [100.0], "OUTPUT0", [100.05])
    wrong = sample("INPUT0", "FP32", [3.5], "OUTPUT0", [4.5])
    send = ("--model", "identity_fp32", *SHORT)
    good = write(tmp_path / "good.jsonl", f"{right}\n\n{near}\n")
    assert_all_answered(run(urls[protocol], *send, "--samples", good))
    assert_all_answered(run(urls[protocol], *send, "--samples", f"identity_fp32={good}"))
    half = write(tmp_path / "half.jsonl", f"{right}\n{wrong}\n")
    report = run(urls[protocol], *send, "--samples", half)
    assert report["total"]["failed"] == {"wrong_answer": 12} and report["total"]["answered"] == 12
    assert report["said"]["wrong_answer"] == "output `OUTPUT0`: element 0: expected 4.5, got 3.5"
    assert report["total"]["attainment"] == 0.5
    exact = run(urls[protocol], *send, "--samples", good, "--tolerance", 0)
    assert exact["total"]["failed"] == {"wrong_answer": 12}
    whole = write(tmp_path / "whole.jsonl", sample("INPUT0", "INT64", [7, -3], "OUTPUT0", [7, -3]))
    assert_all_answered(run(urls[protocol], "--model", "identity_int64", *SHORT, "--samples", whole))
    strings = write(tmp_path / "strings.jsonl", sample("INPUT0", "BYTES", ["a", "ü"], "OUTPUT0", ["a", "ü"]))
    assert_all_answered(run(urls[protocol], "--model", "identity_bytes", *SHORT, "--samples", strings))


def test_stages(urls: dict[str, str]) -> None:
    send = ("--model", "digits", "--rate", 40, "--arrivals", "uniform", "--warmup", "0s")
    report = run(urls["grpc"], *send, "--stage", "500ms:1", "--stage", "500ms:3", "--stage", "1s:0..2")
    assert_all_answered(report)
    offered = [stage["figures"]["offered"] for stage in report["stages"]]
    assert all(abs(found - due) <= 1 for found, due in zip(offered, (20, 60, 40))), offered
    assert [(stage["scale_from"], stage["scale_to"]) for stage in report["stages"]] == [(1, 1), (3, 3), (0, 2)]
    assert report["measured_s"] == 2.0


def test_a_closed_loop(urls: dict[str, str]) -> None:
    for threads in (1, 3):
        closed = ("--concurrency", 2, "--duration", "500ms", "--warmup", "0s", "--threads", threads)
        report = run(urls["http"], "--model", "steady", *closed)
        assert_all_answered(report)
        assert report["driven"] == {"loop": "closed", "concurrency": 2}
        assert report["client"]["connections"] <= 2 and report["total"]["offered"] <= 2 * (500 / 20 + 1) * 2


def test_every_result_can_be_read(server: Tessera, urls: dict[str, str], tmp_path: Path) -> None:
    page, table, log = tmp_path / "out.html", tmp_path / "out.csv", tmp_path / "out.hlog"
    outputs = ("--report", page, "--csv", table, "--hdr", log)
    send = ("--model", "digits", "--rate", 80, "--duration", "2s", "--warmup", "0s", "--slo", "20s")
    answer = load("--url", urls["http"], *send, *outputs, "--json")
    report = answer.report()
    html = page.read_text()
    assert html.startswith("<!doctype html>") and "<svg" in html and "digits" in html
    assert "http://" not in html.replace(urls["http"], "").replace("http://www.w3.org/", ""), "the page loads nothing from elsewhere"
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == len(report["seconds"]) == 2
    assert [int(row["offered_requests"]) for row in rows] == [second["offered"] for second in report["seconds"]]
    lines = log.read_text().splitlines()
    assert any(line.startswith("#") for line in lines) and any("HISTFAAA" in line for line in lines)
    text = load("--url", urls["http"], *send)
    assert text.code in (RAN, LATE) and "digits" in text.out and "goodput/s" in text.out and not text.said

    mine = write(tmp_path / "a.json", answer.out)
    compared = load("compare", mine, mine)
    assert compared.code == RAN and "digits" in compared.out, compared.said
    rows = json.loads(load("compare", mine, mine, "--json").out)["rows"]
    assert rows and all(row["ratio"] in (None, 1.0) for row in rows), rows
    server.wait_ready()
