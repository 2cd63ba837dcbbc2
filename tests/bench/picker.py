"""What an endpoint picker adds to the latency of a request through Envoy: `tests/run picker`.

Two servers, one Envoy that spreads requests in turn and one that asks a picker. Each is sent requests at a low, fixed rate, in slices
that alternate, so that other load on the machine meets both alike. Prints percentiles in milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from fixtures.envoy import Envoy
from fixtures.fleet import Picker
from fixtures.synthetic import echo
from fixtures.tessera import Tessera

TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}
BODY = json.dumps({"inputs": [TENSOR]})


def measure(connection: http.client.HTTPConnection, count: int, rate: float) -> list[float]:
    """Latencies of requests that are sent at this rate, in milliseconds."""
    latencies = []
    begun = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        sent = time.perf_counter()
        connection.request("POST", "/v2/models/x/infer", BODY)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        latencies.append((time.perf_counter() - sent) * 1e3)
    return latencies


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rate", type=float, default=100.0, help="requests per second")
    arguments.add_argument("--slices", type=int, default=10, help="slices of 500 requests for each of the two")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        nodes = {}
        for name in "ab":
            repository = Path(folder) / name
            repository.mkdir()
            echo(alpha_us=1_000, max_batch=8).place(repository, "x")
            nodes[name] = stack.enter_context(Tessera(repository)).wait_ready()
        picker = stack.enter_context(Picker(nodes))
        picker.wait_connected(2)
        servers = list(nodes.values())
        envoys = {
            "round robin": stack.enter_context(Envoy(servers, [], round_robin=True)),
            "picker": stack.enter_context(Envoy(servers, [picker.address()])),
        }
        connections = {name: http.client.HTTPConnection(envoy.address, timeout=20) for name, envoy in envoys.items()}
        found: dict[str, list[float]] = {name: [] for name in envoys}
        for connection in connections.values():
            measure(connection, 200, options.rate)
        for _ in range(options.slices):
            for name, connection in connections.items():
                found[name] += measure(connection, 500, options.rate)
        print(f"{options.rate:.0f} requests/s, {options.slices * 500} requests each, batches picked: {picker.picks('batch')}")
        print(f"{'':12} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8}")
        for name, values in found.items():
            print(f"{name:12} " + " ".join(f"{percentile(values, share):8.3f}" for share in (0.5, 0.9, 0.99)))


if __name__ == "__main__":
    main()
