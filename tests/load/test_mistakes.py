"""Every mistake has an exit code and a message that names it, and starts no run."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from load.command import FAILED, MISUSED, load

DIGITS = ("--url", "{http}", "--model", "digits", "--duration", "300ms", "--warmup", "0s")


@dataclass(frozen=True)
class Mistake:
    """Arguments, with addresses and files in braces; the exit code; parts of the message."""

    arguments: tuple[object, ...]
    code: int
    says: tuple[str, ...]


def digits(*more: object, code: int = FAILED, says: tuple[str, ...]) -> Mistake:
    return Mistake((*DIGITS, *more), code, says)


def at(url: str, *says: str, model: str = "digits") -> Mistake:
    return Mistake(("--url", url, "--model", model, "--timeout", "5s"), FAILED, says)


MISTAKES = {
    # The address of the server.
    "unreachable": at("http://127.0.0.1:{closed}", "cannot connect", "refused"),
    "unreachable_grpc": at("grpc://127.0.0.1:{closed}", "cannot connect", "refused"),
    "unknown_host": at("http://no-such-host.invalid", "cannot find this host"),
    "a_web_server": at("http://127.0.0.1:{page}", "expected the Open Inference Protocol"),
    "a_web_server_over_http2": at("http2://127.0.0.1:{page}", "http2://127.0.0.1:{page}: "),
    "a_web_server_over_grpc": at("grpc://127.0.0.1:{page}", "grpc://127.0.0.1:{page}: "),
    "an_error_page": at("http://127.0.0.1:{lost}", "http_404"),
    "our_grpc_port_over_http": at("http://{grpc_address}", "http://{grpc_address}: "),
    "our_http_port_over_grpc": at("grpc://{http_address}", "not_grpc", "404"),
    "our_metrics_port": at("{metrics}", "http_404"),
    "no_authorities": Mistake(("--url", "https://127.0.0.1:1", "--ca", "/nowhere", "--model", "m"), FAILED, ("--ca: /nowhere",)),
    "a_path": Mistake(("--url", "http://127.0.0.1:1/v2", "--model", "m"), MISUSED, ("expected only a host and a port",)),
    "ftp": Mistake(("--url", "ftp://127.0.0.1", "--model", "m"), MISUSED, ("expected http://HOST:PORT",)),
    "unknown_model": at("{http}", "model `nope`", "unknown", model="nope"),
    "unknown_model_over_grpc": at("{grpc}", "model `nope`", "unknown", model="nope"),
    # The requests.
    "nothing": Mistake((), MISUSED, ("WORKLOAD.toml",)),
    "both": Mistake(("{workload}", "--model", "digits"), MISUSED, ("cannot be used with",)),
    "no_such_workload": Mistake(("{folder}/none.toml",), FAILED, ("cannot read", "none.toml")),
    "a_workload_with_a_typo": Mistake(("{typo}",), FAILED, ("typo.toml:5", "rte", "rate")),
    "a_workload_that_is_a_folder": Mistake(("{folder}",), FAILED, ("is not a file",)),
    "unknown_name_mapped": digits("--map", "other=digits", says=("--map", "no model `other`")),
    "half_a_mapping": digits("--map", "digits", code=MISUSED, says=("MODEL=NAME",)),
    "rows_that_the_model_cannot_take": Mistake(
        ("--url", "{http}", "--model", "fixed", "--rows", 2), FAILED, ("model `fixed`", "takes no batch", "2 rows")
    ),
    "more_rows_than_any": digits("--rows", 5000, says=("--model: expected 1 to 4096 rows, got 5000",)),
    "open_shape": Mistake(("--url", "{http}", "--model", "identity_fp32"), FAILED, ("[-1,-1]", "tessera load", "--shape INPUT0=1x32")),
    "shape_of_letters": digits("--shape", "image=a,b", says=("--shape image", "`a,b`")),
    "shape_that_does_not_fit": digits("--shape", "image=1,2,3", says=("--shape [1, 2, 3]", "[-1,64]")),
    "shape_of_no_input": digits("--shape", "imgae=1,64", says=("--shape", "imgae")),
    "range_of_no_input": digits("--range", "digits/imgae=0..1", says=("--range", "digits/imgae")),
    "range_upside_down": digits("--range", "image=5..1", says=("--range image", "`5..1`")),
    "enormous_shape": Mistake(
        ("--url", "{http}", "--model", "identity_fp32", "--shape", "INPUT0=1,99999999999"), FAILED, ("more than", "bytes")
    ),
    "no_such_samples": digits("--samples", "{folder}/none.jsonl", says=("--samples", "none.jsonl")),
    "samples_of_no_model": digits("--samples", "other={samples}", says=("--samples", "other")),
    "samples_that_are_no_json": digits("--samples", "{workload}", says=("two.toml:1",)),
    "samples_of_another_type": digits("--samples", "{wrong_type}", says=("model `digits`", "FP64")),
    "samples_of_another_input": digits("--samples", "{wrong_input}", says=("model `digits`", "picture")),
    "samples_of_other_rows": digits("--samples", "{samples}", "--rows", 3, says=("no request of 3 row(s)",)),
    "samples_with_a_wrong_expectation": digits("--samples", "{wrong_expect}", says=("output `digit`: element 0: expected 77, got",)),
    "empty_samples": digits("--samples", "{empty}", says=("expected a request a line",)),
    "json_over_grpc": Mistake(
        ("--url", "{grpc}", "--model", "digits", "--tensors", "json"), FAILED, ("--tensors", "expected binary")
    ),
    # The load.
    "no_rate": digits("--rate", 0, says=("--rate: expected more than 0",)),
    "rate_of_letters": digits("--rate", "fast", code=MISUSED, says=("--rate",)),
    "warmup_longer_than_the_run": Mistake((*DIGITS[:-2], "--warmup", "1h"), FAILED, ("leaves nothing to measure",)),
    "duration_without_unit": digits("--duration", "5", code=MISUSED, says=("--duration",)),
    "no_factor": digits("--stage", "1s", code=MISUSED, says=("expected a time and a factor",)),
    "stage_and_duration": digits("--stage", "1s:1", code=MISUSED, says=("cannot be used with",)),
    "no_concurrency": digits("--concurrency", 0, code=MISUSED, says=("not in 1..=100000",)),
    "capacity_of_a_closed_loop": digits("--find-capacity", "--concurrency", 1, code=MISUSED, says=("cannot be used",)),
    "attainment_without_a_search": digits("--attainment", 0.9, code=MISUSED, says=("--find-capacity",)),
    "attainment_above_1": digits("--find-capacity", "--attainment", 1.5, says=("--attainment: expected",)),
    "no_threads": digits("--threads", 0, code=MISUSED, says=("not in 1..=256",)),
    "no_timeout": digits("--timeout", "0s", says=("--timeout: expected more than 0s",)),
    "negative_tolerance": digits("--tolerance=-1", says=("--tolerance: expected 0 or more",)),
    "unknown_flag": digits("--rps", 5, code=MISUSED, says=("unexpected argument '--rps'",)),
    # The results.
    "report_in_a_missing_folder": digits("--report", "{folder}/none/x.html", says=("--report: cannot write",)),
    "report_that_is_a_folder": digits("--report", "{folder}", says=("--report: cannot write", "directory")),
    "csv_that_cannot_be_written": digits("--csv", "/proc/self/x.csv", says=("--csv: cannot write",)),
    "hdr_that_cannot_be_written": digits("--hdr", "{folder}/none/x.hlog", says=("--hdr: cannot write",)),
    # Comparing.
    "compare_with_nothing": Mistake(("compare", "{samples}"), MISUSED, ("AFTER",)),
    "compare_missing_files": Mistake(("compare", "{folder}/a", "{folder}/b"), FAILED, ("cannot read",)),
    "compare_a_workload": Mistake(("compare", "{workload}", "{workload}"), FAILED, ("two.toml", "not JSON")),
    "compare_other_json": Mistake(("compare", "{other_json}", "{other_json}"), FAILED, ("without `format`",)),
    "compare_a_simulation": Mistake(("compare", "{simulation}", "{simulation}"), FAILED, ("tessera simulate --json",)),
    "compare_another_layout": Mistake(("compare", "{layout}", "{layout}"), FAILED, ("reads 1, the file has 99",)),
}


def sample(name: str, datatype: str, expected: int | None = None) -> str:
    line: dict[str, object] = {"inputs": [{"name": name, "datatype": datatype, "shape": [1, 64], "data": [0.0] * 64}]}
    if expected is not None:
        line["expect"] = [{"name": "digit", "datatype": "INT64", "shape": [1], "data": [expected]}]
    return json.dumps(line)


class Page(http.server.BaseHTTPRequestHandler):
    """The same page for every path."""

    status = 200

    def do_GET(self) -> None:
        body = b"<html><h1>It works!</h1></html>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


class Lost(Page):
    status = 404


@pytest.fixture(scope="module")
def places(server, urls: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Values for the names in braces above."""
    folder = tmp_path_factory.mktemp("mistakes")
    workload = "name = 'two'\nduration = '1s'\n[models.digits]\nslo = '1s'\n{} = 5.0\n"
    files = {
        "workload": ("two.toml", workload.format("rate")),
        "typo": ("typo.toml", workload.format("rte")),
        "samples": ("samples.jsonl", sample("image", "FP32")),
        "wrong_type": ("wrong_type.jsonl", sample("image", "FP64")),
        "wrong_input": ("wrong_input.jsonl", sample("picture", "FP32")),
        "wrong_expect": ("wrong_expect.jsonl", sample("image", "FP32", 77)),
        "empty": ("empty.jsonl", "\n\n"),
        "other_json": ("other.json", '{"a": 1}'),
        "simulation": ("simulation.json", '{"workload": "a", "policies": []}'),
        "layout": ("layout.json", '{"format": 99}'),
    }
    for name, text in files.values():
        (folder / name).write_text(text)
    pages = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Page, Lost)]
    threads = [threading.Thread(target=page.serve_forever) for page in pages]
    for thread in threads:
        thread.start()
    # Bound but not listening: connections to this port are refused.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield {
            **urls,
            **{key: folder / name for key, (name, _) in files.items()},
            "folder": folder,
            "http_address": server.http_address,
            "grpc_address": server.grpc_address,
            "metrics": server.metrics_url.removesuffix("/metrics"),
            "closed": closed.getsockname()[1],
            "page": pages[0].server_port,
            "lost": pages[1].server_port,
        }
    for page, thread in zip(pages, threads):
        page.shutdown()
        page.server_close()
        thread.join()


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(places: dict[str, object], mistake: Mistake) -> None:
    outcome = load(*(str(argument).format_map(places) for argument in mistake.arguments))
    assert outcome.code == mistake.code, outcome
    assert outcome.out == "", "a run that did not start writes no result"
    for words in mistake.says:
        assert words.format_map(places) in outcome.said, outcome.said
    assert outcome.said.startswith("error: ") and "panicked" not in outcome.said
    if mistake.code == FAILED:
        assert len(outcome.said.splitlines()) == 1, outcome.said


def test_a_mistake_does_not_overwrite_an_earlier_result(places: dict[str, object], tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.html"
    earlier.write_text("a run of an hour")
    outcome = load("--url", f"http://127.0.0.1:{places['closed']}", "--model", "digits", "--report", earlier)
    assert outcome.code == FAILED
    assert earlier.read_text() == "a run of an hour"
