"""Traces: both servers answer the same settings alike, and one reader reads the files of both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http

from fixtures import models
from fixtures.tessera import Tessera
from fixtures.wait import until
from triton.conftest import Pair, TraceFolders
from triton.test_settings import post

SERVER, MODEL = "/v2/trace/setting", "/v2/models/plain/trace/setting"
CLEARED = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}
ON = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
# In the order of time. Those of the transport are at both ends.
STAGES = ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
HTTP = ["HTTP_RECV_START", "HTTP_RECV_END", *STAGES, "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END"]
GRPC = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", *STAGES, "REQUEST_END", "GRPC_SEND_START", "GRPC_SEND_END"]
REQUEST = {"id": "abc", "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}

# Path, change: both servers answer with the same settings.
CHANGES = [
    (SERVER, {}),
    (SERVER, {"trace_rate": "5", "trace_count": "7", "log_frequency": "3"}),
    (MODEL, {}),
    (MODEL, {"trace_rate": "9"}),
    (SERVER, {"trace_count": None}),
    (MODEL, {"trace_level": ["TIMESTAMPS"], "trace_mode": "triton"}),
    (SERVER, {"trace_level": ["OFF"], "trace_rate": "6"}),
    (MODEL, {"trace_rate": None}),
    (MODEL, {"trace_level": ["OFF"], "trace_count": "0"}),
]
# Change: both servers refuse it, with the same error.
REFUSED = [
    {"trace_rate": "x"},
    {"trace_rate": "99999999999999"},
    {"trace_count": "-2"},
    {"trace_count": "x"},
    {"log_frequency": "x"},
    {"trace_level": ["OFF", "TIMESTAMPS"]},
    {"trace_level": ["TIMESTAMPS"], "trace_rate": "0"},
]
# Change: our error. Triton ignores these, or reads them as another value.
OURS = [
    ({"rate": "1"}, "unknown trace setting"),
    ({"trace_rate": "-5"}, "Unable to parse 'trace_rate', got: -5"),
    ({"trace_rate": 5}, "trace_rate: expected one text"),
    ({"trace_level": ["ALL"]}, "expected OFF or TIMESTAMPS, got `ALL`"),
    ({"trace_level": ["TIMESTAMPS", "TENSORS"]}, "TENSORS is not available"),
    ({"trace_level": "TIMESTAMPS"}, "trace_level: expected a list"),
    ({"trace_mode": "opentelemetry"}, "trace_mode: cannot be changed"),
    ({"trace_file": "../trace.json"}, "expected the name of a file in `trace.dir`"),
    ({"trace_file": "/tmp/trace.json"}, "expected the name of a file in `trace.dir`"),
]


@pytest.fixture(autouse=True)
def untraced(servers: Pair) -> Iterator[None]:
    yield
    for server, path in itertools.product((servers.tessera, servers.triton), (MODEL, SERVER)):
        assert post(server.base_url, path, CLEARED)[0] == 200


def without_file(answer: tuple[int, dict]) -> tuple[int, dict]:
    """Triton shows the path that it was started with, Tessera the name in its folder."""
    return answer[0], {name: value for name, value in answer[1].items() if name != "trace_file"}


def read(path: Path) -> dict[int, dict]:
    """The traces of a file by id, as Triton's documentation describes them."""
    traces: dict[int, dict] = {}
    for entry in json.loads(path.read_text()):
        trace = traces.setdefault(entry["id"], {"timestamps": {}})
        for timestamp in entry.pop("timestamps", []):
            trace["timestamps"][timestamp["name"]] = timestamp["ns"]
        trace |= entry
    return traces


def test_settings_change_as_tritons(servers: Pair) -> None:
    for path, change in CHANGES:
        ours = without_file(post(servers.tessera.base_url, path, change))
        assert ours == without_file(post(servers.triton.base_url, path, change)), (path, change)
        assert ours[0] == 200


@pytest.mark.parametrize("change", REFUSED)
def test_a_wrong_change_is_refused_in_tritons_words(servers: Pair, change: dict) -> None:
    ours = post(servers.tessera.base_url, SERVER, change)
    assert ours == post(servers.triton.base_url, SERVER, change)
    assert ours[0] == 400


@pytest.mark.parametrize(("change", "words"), OURS)
def test_what_triton_ignores_is_an_error(servers: Pair, change: dict, words: str) -> None:
    before = post(servers.tessera.base_url, SERVER, {})
    status, answer = post(servers.tessera.base_url, SERVER, change)
    assert status == 400
    assert words in answer["error"]
    assert post(servers.tessera.base_url, SERVER, {}) == before


def test_unknown_models_have_no_settings(servers: Pair) -> None:
    for server in (servers.tessera, servers.triton):
        assert post(server.base_url, "/v2/models/absent/trace/setting", {"trace_rate": "1"})[0] >= 400


def test_grpc_changes_the_same_settings(servers: Pair) -> None:
    for server in (servers.tessera, servers.triton):
        with tritonclient.grpc.InferenceServerClient(server.grpc_address) as connection:
            change = {"trace_rate": "4", "trace_level": ["TIMESTAMPS"]}
            settings = connection.update_trace_settings("plain", change, as_json=True)["settings"]
            assert settings["trace_rate"]["value"] == ["4"]
            assert settings["trace_level"]["value"] == ["TIMESTAMPS"]
            settings = connection.update_trace_settings("plain", {"trace_rate": None}, as_json=True)["settings"]
            assert settings["trace_rate"]["value"] == ["1000"]
            assert "trace_level" in connection.get_trace_settings(as_json=True)["settings"]


def traced_http(server: object) -> None:
    with tritonclient.http.InferenceServerClient(server.http_address) as connection:
        tensor = tritonclient.http.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(numpy.ones((1, 2), numpy.float32))
        connection.infer("plain", [tensor], request_id="abc")


def traced_grpc(server: object) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as connection:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(numpy.ones((1, 2), numpy.float32))
        connection.infer("plain", [tensor], request_id="abc")


@pytest.mark.parametrize(("send", "stages"), [(traced_http, HTTP), (traced_grpc, GRPC)], ids=["http", "grpc"])
def test_one_reader_reads_the_traces_of_both(
    servers: Pair, trace_folders: TraceFolders, send: object, stages: list[str]
) -> None:
    for server, folder in ((servers.tessera, trace_folders.tessera), (servers.triton, trace_folders.triton)):
        # With a frequency, Triton writes before it ends.
        assert post(server.base_url, MODEL, {**ON, "log_frequency": "1"})[0] == 200
        before = set(folder.iterdir())
        send(server)

        def new(folder: Path = folder, before: set[Path] = before) -> list[Path]:
            return sorted(path for path in folder.iterdir() if path not in before and path.stat().st_size)

        until(lambda new=new: bool(new()), lambda: "a trace was written", 30.0)
        ((trace),) = read(new()[0]).values()
        assert (trace["model_name"], trace["model_version"], trace["request_id"]) == ("plain", 1, "abc")
        assert set(stages) <= set(trace["timestamps"])
        if server is servers.tessera:
            # Triton may send a response before the batch has ended.
            times = [trace["timestamps"][stage] for stage in stages]
            assert times == sorted(times)


def test_a_file_is_complete_while_the_server_runs(servers: Pair, trace_folders: TraceFolders) -> None:
    """Every second request, three in all. A client may name another file in the folder."""
    server = servers.tessera
    change = {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "3", "trace_file": "own.json"}
    assert post(server.base_url, MODEL, change)[0] == 200
    written = server.metric("tessera_traces_total")
    for number in range(10):
        assert post(server.base_url, "/v2/models/plain/infer", {**REQUEST, "id": f"r{number}"})[0] == 200
        assert post(server.base_url, "/v2/models/cached/infer", REQUEST)[0] == 200
    until(lambda: server.metric("tessera_traces_total") == written + 3, lambda: "three traces were written", 30.0)
    traces = read(trace_folders.tessera / "own.json")
    assert [trace["request_id"] for trace in traces.values()] == ["r1", "r3", "r5"]
    assert post(server.base_url, MODEL, {})[1]["trace_count"] == "0"
    assert server.metric("tessera_traces_lost_total") == 0


def test_traces_beyond_the_limit_are_counted_and_logged(tmp_path: Path) -> None:
    repository, folder = tmp_path / "models", tmp_path / "traces"
    models.place(repository, "plain", models.identity("FP32", ["N", "M"]))
    config = f'[trace]\ndir = "{folder}"\nlevel = "TIMESTAMPS"\nrate = 1\nlog_frequency = 1\nmax_bytes = "8KiB"\n'
    with Tessera(repository, config) as server:
        server.wait_ready()
        for _ in range(5):
            assert post(server.base_url, "/v2/models/plain/infer", REQUEST)[0] == 200
        until(lambda: server.metric("tessera_traces_lost_total") == 3, lambda: "three traces were lost", 30.0)
        assert server.metric("tessera_traces_total") == 2
        (warning,) = server.logged("traces are not written")
        assert "trace.max_bytes" in warning["error"]
        assert sorted(path.name for path in folder.iterdir()) == ["trace.json.0", "trace.json.1"]


def test_clients_write_nothing_unless_the_operator_says_where(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    models.place(repository, "plain", models.identity("FP32", ["N", "M"]))
    with Tessera(repository) as server:
        server.wait_ready()
        for change in ({"trace_file": "trace.json"}, {"trace_level": ["TIMESTAMPS"]}):
            status, answer = post(server.base_url, SERVER, change)
            assert status == 400
            assert "`trace.dir`" in answer["error"]
