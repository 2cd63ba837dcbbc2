#!/usr/bin/env python3
"""Measures what operating features cost, and writes docs/operate-cost.md.

    tests/run operate [--rounds N] [--only NAME]    about 12 minutes; needs a machine without other load

Every comparison runs its servers side by side: one round of each, one after the other, several times. Client and server share the
cores of the machine. A figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from fixtures.certificates import Authority
from fixtures.keys import new_key
from fixtures.models import identity, place
from fixtures.settings import Settings
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.tokens import AUDIENCE, ISSUER, Signer
from fixtures.wait import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operate-cost.md"
SECONDS = 8
MODELS = 1_000
VIEWERS = 10
# Rounds in which four things change.
ROTATIONS = 25
OFF = "[request_log]\nkept = 0\n"


def load(server: Tessera, url: str, concurrency: int, *options: str, model: str = "m", seconds: int = SECONDS) -> dict:
    """Runs a closed loop, and returns the load generator's report with the server's CPU time for a request."""
    command = [os.environ["TESSERA_BIN"], "load", "--model", model, "--url", url, "--concurrency", str(concurrency)]
    command += ["--duration", f"{seconds}s", "--warmup", "1s", "--json", *options]
    before = server.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + seconds)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    report = json.loads(done.stdout)
    offered = report["total"]["offered"] * seconds / (seconds - 1)
    report["cpu_us"] = (server.cpu_seconds() - before) / offered * 1e6
    if report["total"]["failed"] or not report["total"]["good"]:
        raise RuntimeError(f"requests failed: {report['total']}")
    return report


def features(folder: Path, rounds: int) -> list[list[str]]:
    """CPU time of a request with TLS, a key, an access log of what was refused, and traces of 1 %, against all of it off."""
    repository = folder / "identity"
    place(repository, "m", identity("FP32", ["N", 16]))
    authority = Authority(folder)
    cert, key_file = authority.sign("server")
    key, line = new_key("--role", "infer")
    keys = folder / "keys"
    keys.write_text(line)
    secured = f'''
[identity]
keys = "{keys}"
[tls]
cert = "{cert}"
key = "{key_file}"
[request_log]
access_log = "{folder / 'access.log'}"
access_log_requests = "unsuccessful"
[telemetry]
endpoint = "http://127.0.0.1:1"
sample = 100
'''
    trust = ("--ca", str(authority.ca), "--key", key)
    rows = []
    for name, plain, tls, concurrency in (("HTTP, 8 at once", "http", "https", 8), ("gRPC, 32 at once", "grpc", "grpcs", 32)):
        off, ring, on = [], [], []
        for _ in range(rounds):
            for config, scheme, options, into in ((OFF, plain, (), off), ("", plain, (), ring), (secured, tls, trust, on)):
                with Tessera(repository, config) as server:
                    address = server.grpc_address if "grpc" in scheme else server.http_address
                    into.append(load(server, f"{scheme}://{address}", concurrency, *options)["cpu_us"])
        base = statistics.median(off)
        rows.append([f"CPU time of a request, {name}: request log off", f"{base:.1f} us", "", ""])
        for what, values, aim in (("request log (the default)", ring, 1.02), ("TLS, key, access log, traces of 1 %", on, 1.35)):
            ratio = statistics.median(value / start for value, start in zip(values, off))
            rows.append([f"CPU time of a request, {name}: {what}", f"{statistics.median(values):.1f} us", f"{ratio:.3f}x", f"<= {aim}x"])
    return rows


def thousand(folder: Path, rounds: int) -> list[list[str]]:
    """A server with 1,000 models on one core, against one with one of them."""
    one, many = folder / "one", folder / "many"
    echo(50, max_batch=8).place(one, "m")
    for number in range(MODELS - 1):
        echo(50, max_batch=8).place(many, f"other-{number}")
    echo(50, max_batch=8).place(many, "m")
    alone, among, sizes, ready, memory = [], [], [], [], []
    config = '[server]\nthreads = 1\n[models.m]\nslo = "50ms"\n'
    for _ in range(rounds):
        for repository, into in ((one, alone), (many, among)):
            begun = time.monotonic()
            with Tessera(repository, config) as server:
                if repository is many:
                    ready.append(time.monotonic() - begun)
                    memory.append(server.rss_bytes() / 2**20)
                    with urllib.request.urlopen(server.metrics_url, timeout=30) as answer:
                        sizes.append(len(answer.read()) / 2**20)
                # Models are loaded on all cores.
                for task in Path(f"/proc/{server.pid}/task").iterdir():
                    os.sched_setaffinity(int(task.name), {0})
                report = load(server, f"http://{server.http_address}", 8)
                into.append(report["total"]["latency"]["p99_ms"])
    ratio = statistics.median(value / start for value, start in zip(among, alone))
    return [
        [f"{MODELS} models: ready after", f"{statistics.median(ready):.1f} s", "", ""],
        [f"{MODELS} models: memory", f"{statistics.median(memory):.0f} MiB", "", ""],
        [f"{MODELS} models: size of a scrape", f"{statistics.median(sizes):.2f} MiB", "", "< 1 MiB"],
        [f"p99 of one of {MODELS} models, 8 at once on one core", f"{statistics.median(among):.2f} ms", f"{ratio:.2f}x of alone", "<= 1.2x"],
    ]


def dashboard(folder: Path, rounds: int) -> list[list[str]]:
    """Ten pages that follow a server with 100 models on 64 lanes."""
    repository = folder / "hundred"
    for number in range(100):
        echo(500, max_batch=8).place(repository, f"model-{number}")
    config = "[lanes]\nshared = true\ncount = 64\n"

    def follow(server: Tessera, seconds: float) -> int:
        end, size = time.monotonic() + seconds, 0
        with urllib.request.urlopen(f"http://{server.announced['admin']}/v2/activity/events", timeout=10) as events:
            while time.monotonic() < end:
                size += len(events.readline())
        return size

    shares, grown = [], []
    for _ in range(rounds):
        with Tessera(repository, config) as server:
            time.sleep(2)
            before, memory = server.cpu_seconds(), server.rss_bytes()
            time.sleep(SECONDS)
            idle = (server.cpu_seconds() - before) / SECONDS
            before, begun = server.cpu_seconds(), time.monotonic()
            with ThreadPoolExecutor(VIEWERS) as pages:
                list(pages.map(lambda _: follow(server, SECONDS), range(VIEWERS)))
            watched = (server.cpu_seconds() - before) / (time.monotonic() - begun)
            shares.append(watched - idle)
            grown.append((server.rss_bytes() - memory) / 2**20)
    return [
        [f"{VIEWERS} pages on 100 models and 64 lanes: CPU", f"{100 * statistics.median(shares):.2f} % of a core", "", "< 2 %"],
        [f"{VIEWERS} pages on 100 models and 64 lanes: memory", f"{statistics.median(grown):.1f} MiB", "", "< 20 MiB"],
    ]


def rotations(folder: Path, _: int) -> list[list[str]]:
    """Certificates, keys, signing keys and the configuration change under load, on connections that stay open."""
    repository = folder / "identity"
    place(repository, "m", identity("FP32", ["N", 16]))
    authority = Authority(folder)
    cert, key_file = authority.sign("server")
    key, line = new_key("--role", "infer")
    keys, jwks = folder / "keys", folder / "jwks.json"

    def write(path: Path, text: str) -> None:
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)

    write(keys, line)
    write(jwks, json.dumps({"keys": [Signer().jwk]}))
    config = f'''
[server]
watch_config = true
[identity]
keys = "{keys}"
jwks = "{jwks}"
issuer = "{ISSUER}"
audience = ["{AUDIENCE}"]
[tls]
cert = "{cert}"
key = "{key_file}"
[models.m]
slo = "SLO"
'''
    changed = 0
    with Tessera(repository, config.replace("SLO", "1s")) as server:
        trust = ("--ca", str(authority.ca), "--key", key)
        trusting = ssl.create_default_context(cafile=authority.ca)

        def loaded(file: str) -> float:
            with urllib.request.urlopen(f"https://{server.announced['metrics']}/metrics", timeout=10, context=trusting) as answer:
                lines = answer.read().decode().splitlines()
            wanted = f'tessera_identity_reload_success_seconds{{file="{file}"}}' if file != "config" else "tessera_config_reloads_total"
            return next((float(row.rsplit(" ", 1)[1]) for row in lines if row.startswith(wanted)), 0.0)

        seconds = 4 * ROTATIONS
        with ThreadPoolExecutor(2) as clients:
            urls = (f"https://{server.http_address}", f"grpcs://{server.grpc_address}")
            runs = [clients.submit(load, server, url, 8, *trust, seconds=seconds) for url in urls]
            settings = Settings(server)
            while not all(run.done() for run in runs) and changed < 4 * ROTATIONS:
                before = {file: loaded(file) for file in ("cert", "keys", "jwks", "config")}
                authority.sign("server")
                write(keys, f"{line}\n# {changed}")
                write(jwks, json.dumps({"keys": [Signer().jwk]}))
                settings.write(config.replace("SLO", f"{2 + changed % 7}s"))
                for file, at in before.items():
                    until(lambda: loaded(file) > at, lambda: f"{file} is loaded:\n{server.log()[-2000:]}")  # noqa: B023
                    changed += 1
            reports = [run.result() for run in runs]
    good = sum(report["total"]["good"] for report in reports)
    lost = sum(report["total"]["offered"] - report["total"]["answered"] for report in reports)
    opened = sum(report["client"]["connections"] for report in reports)
    return [
        [f"{changed} changes of certificate, keys, signing keys and configuration: answered", f"{good:,}", "", ""],
        ["the same: requests lost", str(lost), "", "0"],
        ["the same: connections opened by 8 HTTP/1.1 and 8 gRPC requests at once", str(opened), "", "no more than before the first change"],
    ]


MEASUREMENTS: dict[str, Callable[[Path, int], list[list[str]]]] = {
    "features": features,
    "thousand": thousand,
    "dashboard": dashboard,
    "rotations": rotations,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=MEASUREMENTS, help="measure this and print it, without writing the page")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    for name, measure in MEASUREMENTS.items():
        if arguments.only in (None, name):
            print(f"measuring {name} ...", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
                rows += measure(Path(folder), arguments.rounds)
    table = ["| what | measured | ratio | aim |", "|---|---|---|---|", *("| " + " | ".join(row) + " |" for row in rows)]
    print("\n".join(table))
    if arguments.only is None:
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}"
        PAGE.write_text(
            "# What operating features cost\n\n"
            f"Written by `tests/run operate --rounds {arguments.rounds}` on {date.today()}, on {machine}. Client and server share the cores. A "
            "ratio is the median over rounds in which both servers ran one after the other.\n\n" + "\n".join(table) + "\n\n"
            "`request log` is the ring that `tessera explain` reads, with request ids. The collector of the traces does not answer, which is the "
            "most expensive case. `identity` returns its input, so nothing hides these costs.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
