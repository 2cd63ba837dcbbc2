"""SIGTERM under load: every request is answered or rejected with a reason, and the server exits with 0."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from fixtures.synthetic import STEADY
from fixtures.tessera import Tessera
from fixtures.wait import until
from overload.load import Traffic, reasons

SLO_MS = 500
# Multiples of the capacity. Under overload, the queue is full at the signal and has to be completed.
RATES = {"normal load": 0.7, "overload": 2.0}
# After the signal, the server reports that it drains, or it no longer listens. A connection that was not accepted carried
# no request.
REASONS = {"draining", "cannot_connect"}
# The client's message for a GOAWAY without an error. A stream after the last one that it names was not accepted either
# (RFC 9113, 6.8).
GOAWAY = "not a result of an error"
OVERLOAD = {"deadline_unmeetable", "shed", "expired"}


@pytest.mark.parametrize("load", RATES)
@pytest.mark.parametrize("protocol", ["http", "http2", "grpc"])
def test_sigterm_under_load_loses_nothing(tmp_path: Path, length: int, protocol: str, load: str) -> None:
    if protocol == "http2" and length == 1:
        pytest.skip("HTTP/2 differs from gRPC only in the encoding: on --long")
    STEADY.place(tmp_path, "steady")
    config = f'[lanes]\ncount = 1\n[models.steady]\nslo = "{SLO_MS}ms"\n'
    with Tessera(tmp_path, config, options=["--engine", "synthetic"]) as server:
        server.wait_ready()
        address = server.grpc_address if protocol == "grpc" else server.http_address
        running = Traffic(f"{protocol}://{address}", "steady", STEADY.capacity, SLO_MS).start((3, RATES[load]))
        until(lambda: server.metric("tessera_requests_total") >= STEADY.capacity / 2, "requests are answered")
        in_flight = server.metric("tessera_requests_in_flight")
        sent = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(40)
        took = time.monotonic() - sent
    report = running.report()
    total = report.total
    why = reasons(total)
    print(
        f"\n{protocol}, {load}: {in_flight:.0f} in flight at SIGTERM, ended {took * 1e3:.0f} ms later with {code}; "
        f"{total['offered']} offered: {total['answered']} answered, not answered {dict(why)}"
    )
    assert code == 0
    assert in_flight > 0 and why["cannot_connect"] > 0, "the signal did not arrive during the load"
    assert total["answered"] + sum(why.values()) == total["offered"]
    lost = {reason: count for reason, count in why.items() if reason not in REASONS | OVERLOAD}
    said = {reason: report.document["said"].get(reason) for reason in lost}
    if protocol != "http" and GOAWAY in said.get("connection_broke", ""):
        del lost["connection_broke"]
    assert not lost, f"lost: {lost}, {said}"
