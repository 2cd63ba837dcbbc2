"""OpenTelemetry: what a server sends to a collector over OTLP, and what happens without one."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import socket
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.traffic import Clients  # noqa: E402
from fixtures.wait import until  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# One lane; a request of `slow` can never meet its objective once another one runs.
CONFIG = """
[lanes]
count = 1
[models.m]
slo = "5s"
[models.slow]
slo = "40ms"
[tenants.search]
weight = 2
[telemetry]
endpoint = "{endpoint}"
protocol = "{protocol}"
delay = "50ms"
period = "200ms"
timeout = "1s"
"""


class Collector:
    """Everything that was sent to it."""

    def __init__(self) -> None:
        self.traces: list = []
        self.metrics: list = []
        self.logs: list = []
        self.headers: list[dict[str, str]] = []

    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def values(self, name: str) -> list[float]:
        """The last values of a metric with one number."""
        found = [
            metric
            for request in list(self.metrics)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points = found[-1].sum.data_points or found[-1].gauge.data_points if found else []
        return [point.as_double or float(point.as_int) for point in points]

    def messages(self) -> list[str]:
        return [
            record.body.string_value
            for request in list(self.logs)
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


def _service(base: type, response: object, kept: list, collector: Collector) -> object:
    class Service(base):  # type: ignore[misc, valid-type]
        def Export(self, request: object, context: grpc.ServicerContext) -> object:  # noqa: N802
            collector.headers.append(dict(context.invocation_metadata()))
            kept.append(request)
            return response

    return Service()


@contextmanager
def over_grpc() -> Iterator[tuple[str, Collector]]:
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    traces, metrics, logs = trace_service_pb2_grpc, metrics_service_pb2_grpc, logs_service_pb2_grpc
    taken = trace_service_pb2.ExportTraceServiceResponse()
    traces.add_TraceServiceServicer_to_server(_service(traces.TraceServiceServicer, taken, collector.traces, collector), server)
    taken = metrics_service_pb2.ExportMetricsServiceResponse()
    metrics.add_MetricsServiceServicer_to_server(
        _service(metrics.MetricsServiceServicer, taken, collector.metrics, collector), server
    )
    taken = logs_service_pb2.ExportLogsServiceResponse()
    logs.add_LogsServiceServicer_to_server(_service(logs.LogsServiceServicer, taken, collector.logs, collector), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", collector
    finally:
        server.stop(None).wait(10)


@contextmanager
def over_http() -> Iterator[tuple[str, Collector]]:
    collector = Collector()
    places = {
        "/v1/traces": (collector.traces, trace_service_pb2.ExportTraceServiceRequest),
        "/v1/metrics": (collector.metrics, metrics_service_pb2.ExportMetricsServiceRequest),
        "/v1/logs": (collector.logs, logs_service_pb2.ExportLogsServiceRequest),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            kept, message = places[self.path]
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            kept.append(message.FromString(body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", collector
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def attributes(span: Span) -> dict[str, object]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


def place(repository: Path) -> Path:
    echo(2_000, max_batch=8).place(repository, "m")
    echo(30_000).place(repository, "slow")
    return repository


def infer(server: Tessera, model: str, headers: dict[str, str]) -> int:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    asked = urllib.request.Request(f"{server.base_url}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.status


def counters(server: Tessera, name: str) -> Counter[str]:
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.rsplit(" ", 1) for line in lines if line.startswith(f"{name}{{"))
    return Counter({labels: int(float(value)) for labels, value in rows})


@pytest.mark.parametrize(("protocol", "receiver"), [("grpc", over_grpc), ("http", over_http)])
def test_traces_metrics_and_logs_arrive(tmp_path: Path, protocol: str, receiver: object) -> None:
    headers_file = tmp_path / "headers"
    headers_file.write_text("authorization: Bearer secret-of-the-collector\n")
    with receiver() as (endpoint, collector):  # type: ignore[operator]
        config = CONFIG.format(endpoint=endpoint, protocol=protocol) + f'headers_file = "{headers_file}"\n'
        with Tessera(place(tmp_path / "models"), config) as server:
            server.wait_ready()
            known = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "x-request-id": "known"}
            assert infer(server, "m", known) == 200
            with Clients(server, {"slow": 6}) as clients:
                until(lambda: any(status >= 400 for status in clients.total), "a request of `slow` is refused")
            until(lambda: any(span.status.code == 2 for span in collector.spans()), "the span of a refused request")
            until(lambda: collector.values("tessera_requests_total"), "metrics")
            until(lambda: "serving" in collector.messages(), lambda: f"the log, which has {collector.messages()}")
            explained = get(f"{server.base_url}/v2/explain/known")
            until(lambda: any(counters(server, "tessera_telemetry_exported_total").values()), "counted spans")
            assert not any(counters(server, "tessera_telemetry_dropped_total").values())
            log = server.log()
    spans = collector.spans()
    (root,) = (span for span in spans if attributes(span).get("tessera.request.id") == "known")
    assert (root.trace_id.hex(), root.parent_span_id.hex(), root.trace_state) == (TRACE, PARENT, "vendor=1")
    assert explained["trace_id"] == TRACE and explained["tenant"] == "default"
    children = {span.name: span for span in spans if span.parent_span_id == root.span_id}
    assert set(children) == {"queue", "execute"}
    assert root.start_time_unix_nano <= children["queue"].start_time_unix_nano
    assert children["queue"].end_time_unix_nano <= children["execute"].start_time_unix_nano
    assert children["execute"].end_time_unix_nano <= root.end_time_unix_nano
    took = children["execute"].end_time_unix_nano - children["execute"].start_time_unix_nano
    assert took >= 2_000_000, "the model takes 2 ms"
    (batch,) = (span for span in spans if any(link.trace_id == root.trace_id for link in span.links) and span.name == "batch")
    assert batch.trace_id != root.trace_id
    numbers = {one.key: one.value.int_value for one in batch.attributes}
    assert numbers["tessera.batch.id"] == explained["batch"]["id"], "the batch of the explanation"
    failed = [span for span in spans if span.status.code == 2]
    assert failed and all("slow" in span.name or attributes(span).get("tessera.model") == "slow" for span in failed), failed
    assert all(heard["authorization"] == "Bearer secret-of-the-collector" for heard in collector.headers)
    assert "secret-of-the-collector" not in log
    resource = {one.key: one.value.string_value for one in collector.traces[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "tessera" and resource["service.instance.id"]


def test_a_collector_that_is_dead_or_never_answers_delays_nothing_and_is_counted(tmp_path: Path) -> None:
    place(tmp_path / "models")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for endpoint in ("http://127.0.0.1:9", f"http://127.0.0.1:{silent.getsockname()[1]}"):
            config = CONFIG.format(endpoint=endpoint, protocol="grpc") + "queue = 16\nsample = 1\nlimit = 100000\n"
            with Tessera(tmp_path / "models", config) as server:
                server.wait_ready()
                with Clients(server, {"m": 8}) as clients:
                    full = 'tessera_telemetry_dropped_total{signal="traces",cause="queue_full"}'
                    until(
                        lambda: counters(server, "tessera_telemetry_dropped_total")[full] > 50,
                        lambda: f"spans are dropped: {counters(server, 'tessera_telemetry_dropped_total')}",
                    )
                assert set(clients.total) == {200} and clients.wrong == 0 and clients.cut_off == 0
                slowest = sorted(clients.latencies["m"])[-1]
                assert slowest < 1.0, "no request waits for the collector, whose time limit is 1 s"


def test_a_setting_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    place(tmp_path / "models")
    for setting, told in (
        ('endpoint = "collector:4317"', "telemetry.endpoint"),
        ('endpoint = "http://127.0.0.1:4317"\nheaders_file = "/nowhere"', "telemetry.headers_file"),
        ('endpoint = "https://127.0.0.1:4317"\nca = "/nowhere"', "telemetry.ca"),
    ):
        with pytest.raises(RuntimeError, match=told):
            Tessera(tmp_path / "models", f"[telemetry]\n{setting}\n")


def test_a_trace_that_is_not_valid_starts_a_new_one(tmp_path: Path) -> None:
    with over_grpc() as (endpoint, collector):
        config = CONFIG.format(endpoint=endpoint, protocol="grpc") + "sample = 1\n"
        with Tessera(place(tmp_path / "models"), config) as server:
            server.wait_ready()
            for number, parent in enumerate(("00-zz", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "x" * 4000)):
                assert infer(server, "m", {"traceparent": parent, "x-request-id": f"bad-{number}"}) == 200
            named = lambda: [s for s in collector.spans() if "bad" in str(attributes(s).get("tessera.request.id"))]  # noqa: E731
            until(lambda: len(named()) == 4, lambda: f"four spans, not {len(named())}")
            assert all(not span.parent_span_id and span.trace_id.hex() != TRACE for span in named())
            assert Client(server).infer("m", [[1.0, 2.0, 3.0, 4.0]])[0] == 200
