"""The servers under comparison: how each is set up for one model, and what the measurements need of it."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fixtures.tessera import Tessera
from oracle import mlserver, triton

from bench.peers.models import Model

LANES = 2


@dataclass
class Server:
    """A running server, ready."""

    http: str
    grpc: str
    pid: int
    # Successful requests of a model so far: what proves that a client was not measuring refusals.
    answered: Callable[[str], int]


@dataclass(frozen=True)
class Places:
    """Environments of the servers. One that this machine cannot run is None, and the reason is printed."""

    oracle: Path | None
    mlserver: Path | None


@dataclass(frozen=True)
class Candidate:
    """One server in one setting."""

    name: str
    family: str
    # What is set, verbatim, for the document; SLO stands for the objective.
    setting: str
    start: Callable[[Places, Model, float, list[str]], contextlib.AbstractContextManager[Server]]
    # Measured closed loop and with all clients too, and not only for its capacity.
    closed_loop: bool = False
    # Does not send tensors as binary over HTTP.
    json_only: bool = False


def _statistics(http: str) -> Callable[[str], int]:
    def answered(model: str) -> int:
        with urllib.request.urlopen(f"http://{http}/v2/models/{model}/stats", timeout=10) as answer:
            return json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"]

    return answered


def ours() -> Candidate:
    @contextlib.contextmanager
    def start(_: Places, model: Model, slo_ms: float, prefix: list[str]) -> Iterator[Server]:
        config = _tessera_toml(model.name, f"{slo_ms:g}ms")
        with Tessera(model.repository, config=config, prefix=prefix) as server:
            server.wait_ready(120)
            yield Server(server.http_address, server.grpc_address, server.pid, _statistics(server.http_address))

    return Candidate("tessera", "tessera", _tessera_toml("MODEL", "SLO"), start, closed_loop=True)


def _tessera_toml(model: str, slo: str) -> str:
    return f'[models.{model}]\nslo = "{slo}"\n'


def triton_with(
    name: str, batching: str | None, closed_loop: bool = False, instances: int = LANES, script: str = "model.py"
) -> Candidate:
    """Triton with `dynamic_batching { batching }`, or without for None."""

    @contextlib.contextmanager
    def start(places: Places, model: Model, _: float, prefix: list[str]) -> Iterator[Server]:
        assert places.oracle is not None
        with tempfile.TemporaryDirectory(prefix="triton-") as folder:
            triton.wrap(model.repository, Path(folder), batching, instances, script)
            with triton.Triton.on_free_ports(places.oracle, Path(folder), prefix=prefix) as server:
                server.wait_ready()
                yield Server(
                    server.http_address, server.grpc_address, server.process.pid, _statistics(server.http_address)
                )

    setting = f"max_batch_size: {triton.MAX_BATCH}\ninstance_group {{ count: {instances} kind: KIND_CPU }}\n"
    if batching is not None:
        setting += f"dynamic_batching {{ {batching} }}\n"
    if script != "model.py":
        setting += f"# {script} instead of model.py\n"
    return Candidate(name, "triton", setting, start, closed_loop)


def mlserver_with(name: str, settings: dict[str, object], closed_loop: bool = False, workers: int = LANES) -> Candidate:
    @contextlib.contextmanager
    def start(places: Places, model: Model, _: float, prefix: list[str]) -> Iterator[Server]:
        assert places.mlserver is not None
        with tempfile.TemporaryDirectory(prefix="mlserver-") as folder:
            mlserver.wrap(model.repository, Path(folder), settings)
            with mlserver.MLServer(places.mlserver, Path(folder), workers, prefix) as server:
                server.wait_ready()
                yield Server(server.http_address, server.grpc_address, server.process.pid, _counter(server.metrics_url))

    setting = json.dumps({"parallel_workers": workers}) + "  # settings.json\n"
    setting += json.dumps(settings) + "  # model-settings.json, next to the model's metadata\n"
    return Candidate(name, "mlserver", setting, start, closed_loop, json_only=True)


def _counter(url: str) -> Callable[[str], int]:
    """MLServer has no statistics extension; its Prometheus counter says the same."""

    def answered(model: str) -> int:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        pattern = rf'^model_infer_request_success_total\{{[^}}]*model="{re.escape(model)}"[^}}]*\}} (\S+)$'
        return int(sum(float(value) for value in re.findall(pattern, text, re.MULTILINE)))

    return answered


def echo() -> Candidate:
    """Triton whose model gives its input back: the least that a request costs with its Python backend."""
    return triton_with("triton, echo", None, True, 1, "echo.py")


PREFERRED = "preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 5000"

FOR_IDENTITY = [
    ours(),
    triton_with("triton", None, True, 1),
    echo(),
    mlserver_with("mlserver", {}, True, 0),
]

FOR_MODELS = [
    ours(),
    triton_with("triton, no batching", None, True),
    triton_with("triton, delay 0", "", True),
    triton_with("triton, delay 1 ms", "max_queue_delay_microseconds: 1000"),
    triton_with("triton, delay 5 ms", "max_queue_delay_microseconds: 5000"),
    triton_with("triton, preferred 4 and 8", PREFERRED),
    mlserver_with("mlserver, no batching", {}, True),
    mlserver_with("mlserver, adaptive batching", {"max_batch_size": 8, "max_batch_time": 0.005}, True),
]


def available(candidates: list[Candidate], places: Places) -> list[Candidate]:
    have = {"tessera": True, "triton": places.oracle is not None, "mlserver": places.mlserver is not None}
    return [candidate for candidate in candidates if have[candidate.family]]
