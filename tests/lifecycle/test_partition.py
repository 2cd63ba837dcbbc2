"""Gpulets that follow the load: what happens to requests while cores change hands, as a client and an operator see it.

No test waits by the clock: each step waits for something the server says, with a bound.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client, get  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402

MODEL = """
max_batch = 8

[[inputs]]
name = "INPUT0"
datatype = "FP32"
dims = [-1, 4]

[[outputs]]
name = "OUTPUT0"
datatype = "FP32"
dims = [-1, 4]

[time]
alpha_us = {alpha}
beta_us = {beta}
"""
CONFIG = """
[lanes]
cores = [[0], [1]]

[partition]
live = true
period = "200ms"
probation = "300ms"

[models.quick]
slo = "80ms"
[models.slow]
slo = "200ms"
[models.rare]
slo = "400ms"
"""
TIMES = {"quick": (2_000, 1_000), "slow": (12_000, 6_000), "rare": (8_000, 4_000)}

needs_two_cores = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="two gpulets need cores 0 and 1"
)


def repository(folder: Path) -> Path:
    for name, (alpha, beta) in TIMES.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.toml").write_text(MODEL.format(alpha=alpha, beta=beta))
    return folder


def partition(server: Tessera) -> dict:
    return get(f"{server.base_url}/v2/partition")


def until(condition, what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"


class Traffic:
    """Clients that send one request after another, each with its own numbers, and check that these come back."""

    def __init__(self, server: Tessera, crowd: dict[str, int]) -> None:
        self.statuses: Counter = Counter()
        self.wrong = 0
        self._server = server
        self._stop = threading.Event()
        each = (name for name, count in crowd.items() for _ in range(count))
        self._threads = [threading.Thread(target=self._send, args=(name, at)) for at, name in enumerate(each)]
        for thread in self._threads:
            thread.start()

    def _send(self, model: str, at: int) -> None:
        client = Client(self._server)
        number = 0
        while not self._stop.is_set():
            number += 1
            row = [float(at), float(number), -float(number), 0.5]
            status, answer, _ = client.infer(model, [row], timeout=5_000_000)
            self.statuses[status] += 1
            self.wrong += status == 200 and answer["outputs"][0]["data"] != row

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request was never answered"


@needs_two_cores
def test_cores_change_hands_as_the_mix_shifts_and_no_request_is_lost(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        epochs = []
        for crowd in ({"quick": 6, "rare": 1}, {"slow": 6, "rare": 1}, {"quick": 4, "slow": 3}):
            before = partition(server)["epoch"]
            traffic = Traffic(server, crowd)
            try:
                until(
                    lambda: partition(server)["epoch"] > before and not partition(server)["changing"],
                    f"another plan for {crowd}: {partition(server)}",
                )
            finally:
                traffic.end()
            assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses
            epochs.append(partition(server)["epoch"])
        view = partition(server)
        print(f"epochs {epochs}: {[(g['first_unit'], g['units'], [s['workload'] for s in g['slots']]) for g in view['gpulets']]}")
        served = {slot["workload"] for gpulet in view["gpulets"] for slot in gpulet["slots"]}
        assert served == set(TIMES), "every model keeps a place"
        assert any(row["because"] for row in view["decisions"]) and view["history"], view
        batches = {model["name"]: model["batches"] for model in view["models"]}
        assert all(batches[name] and batches[name][0]["predicted_p50_ms"] > 0 for name in ("quick", "slow")), batches


@needs_two_cores
def test_an_operator_freezes_and_thaws(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG + "\n[server]\nlog_level = 'info'\n", ["--set", "partition.frozen=true"]) as server:
        server.wait_ready()
        operator = Client(server)
        traffic = Traffic(server, {"quick": 4})
        try:
            until(lambda: traffic.statuses[200] > 200, "answers while frozen")
            view = partition(server)
            assert view["frozen"] and view["epoch"] == 0 and not view["gpulets"], view
            assert operator.post("/v2/partition/thaw", {})[0] == 200
            until(lambda: partition(server)["epoch"] > 0, "a plan after the thaw")
            assert operator.post("/v2/partition/freeze", {})[0] == 200
            until(lambda: not partition(server)["changing"], "the end of what was under way")
            assert partition(server)["frozen"]
        finally:
            traffic.end()
        assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses


def gpulet(first_unit: int, units: int, *models: str) -> dict:
    slots = [{"workload": model, "batch": 4, "budget_us": 20_000.0, "rate": 10.0} for model in models]
    duty = {"duty_us": 20_000.0 * len(slots)} if len(slots) > 1 else {}
    return {"device": "cpu0", "first_unit": first_unit, "units": units, **duty, "slots": slots}


@needs_two_cores
def test_a_plan_by_hand_stays_until_the_operator_lets_go(tmp_path: Path) -> None:
    apart = {"gpulets": [gpulet(0, 1, "quick", "rare"), gpulet(1, 1, "slow")]}
    together = {"gpulets": [gpulet(0, 2, "quick", "slow", "rare")]}
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        operator = Client(server)
        until(lambda: partition(server)["epoch"] > 0, "the first plan")
        traffic = Traffic(server, {"quick": 3, "slow": 2, "rare": 1})
        try:
            for plan in (apart, together, apart, apart):
                status, answer, _ = operator.post("/v2/partition/plan", plan)
                assert status == 200, answer
                view = partition(server)
                assert view["by_hand"] and not view["changing"], view
                in_force = [{key: value for key, value in row.items() if key != "id"} for row in view["gpulets"]]
                assert in_force == plan["gpulets"], in_force
            assert answer["changed"] is False and answer["epoch"] == view["epoch"], answer
            held = view["epoch"]
            wrongs = {
                "device": {"gpulets": [{**gpulet(0, 2, "quick", "slow", "rare"), "device": "cpu7"}]},
                "`slow` has no slot": {"gpulets": [gpulet(0, 1, "quick", "rare")]},
                "overlap": {"gpulets": [gpulet(0, 2, "quick", "slow"), gpulet(1, 1, "rare")]},
                "nothing": {"gpulets": [gpulet(0, 2, "quick", "slow", "rare", "nothing")]},
                "window": {"gpulets": [{**gpulet(0, 2, "quick", "slow", "rare"), "window": {"period_us": 1e4, "offset_us": 0.0, "length_us": 5e3}}]},
                "expected `{": {"gpulet": []},
            }
            for words, plan in wrongs.items():
                status, answer, _ = operator.post("/v2/partition/plan", plan)
                assert status == 400 and words in answer["error"], (words, status, answer)
            before = traffic.statuses[200]
            until(lambda: traffic.statuses[200] > before + 500, "more load")
            assert partition(server)["epoch"] == held, "the load moves nothing"
            assert operator.post("/v2/partition/freeze", {})[0] == 200
            status, answer, headers = operator.post("/v2/partition/plan", together)
            assert status == 409 and "frozen" in answer["error"] and headers["x-tessera-reason"] == "plan_refused", answer
            assert operator.post("/v2/partition/thaw", {})[0] == 200
            until(lambda: not partition(server)["by_hand"], "plans follow the load again")
        finally:
            traffic.end()
        assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses


@needs_two_cores
def test_models_come_and_go_while_gpulets_follow_the_load(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        operator = Client(server)
        traffic = Traffic(server, {"quick": 4})
        try:
            until(lambda: partition(server)["epoch"] > 1, "a plan for the load")
            status, body, _ = operator.post("/v2/repository/models/rare/unload", {})
            assert status == 200, body
            until(
                lambda: all(s["workload"] != "rare" for g in partition(server)["gpulets"] for s in g["slots"]),
                "a plan without the model that is gone",
            )
            status, body, _ = operator.post("/v2/repository/models/rare/load", {})
            assert status == 200, body
            row = [1.0, 2.0, 3.0, 4.0]
            status, body, _ = operator.infer("rare", [row])
            assert status == 200 and body["outputs"][0]["data"] == row, body
            until(
                lambda: any(s["workload"] == "rare" for g in partition(server)["gpulets"] for s in g["slots"]),
                "a plan with the model that came back",
            )
            status, body, _ = operator.infer("rare", [row])
            assert status == 200, body
        finally:
            traffic.end()
        assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses


@needs_two_cores
def test_a_model_that_nobody_asks_for_leaves_and_the_next_request_brings_it_back(tmp_path: Path) -> None:
    config = CONFIG.replace("live = true", "live = true\nidle = '1s'")
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()
        placed = lambda: {slot["workload"] for gpulet in partition(server)["gpulets"] for slot in gpulet["slots"]}  # noqa: E731
        traffic = Traffic(server, {"quick": 3})
        try:
            until(lambda: partition(server)["epoch"] > 0 and placed() == {"quick"}, f"the others leave: {placed()}")
            assert server.is_ready(), "a model that is away is no fault"
            row = [1.0, 2.0, 3.0, 4.0]
            begun = time.monotonic()
            answers = [None] * 4
            clients = [threading.Thread(target=lambda at=at: answers.__setitem__(at, Client(server).infer("slow", [row], timeout=20_000_000))) for at in range(4)]
            for client in clients:
                client.start()
            for client in clients:
                client.join(30)
            assert all(a[0] == 200 and a[1]["outputs"][0]["data"] == row for a in answers), answers
            print(f"brought back and answered after {1e3 * (time.monotonic() - begun):.0f} ms")
            assert "slow" in placed() and "rare" not in placed()
            status, body, _ = Client(server).infer("rare", [row], timeout=1_000)
            assert status in (503, 504), (status, body)
            until(lambda: placed() == {"quick"}, "they leave again")
        finally:
            traffic.end()
        assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses


@needs_two_cores
def test_a_gpulet_whose_process_is_killed_is_replaced_by_the_next_plan(tmp_path: Path) -> None:
    config = CONFIG.replace("[partition]", "[devices]\nisolation = 'process'\n\n[partition]")
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()
        traffic = Traffic(server, {"quick": 4, "slow": 2})
        try:
            until(lambda: partition(server)["epoch"] > 1 and not partition(server)["changing"], "a plan for the load")
            children = Path(f"/proc/{server.pid}/task").glob("*/children")
            workers = {int(pid) for child in children for pid in child.read_text().split()}
            before = {gpulet["id"] for gpulet in partition(server)["gpulets"]}
            assert len(workers) >= len(before), "each gpulet has its process"
            os.kill(max(workers), signal.SIGKILL)
            until(
                lambda: {g["id"] for g in partition(server)["gpulets"]} != before and not partition(server)["changing"],
                f"another gpulet: {partition(server)['history'][-3:]}",
            )
            row = [1.0, 2.0, 3.0, 4.0]
            for model in TIMES:
                status, body, _ = Client(server).infer(model, [row], timeout=5_000_000)
                assert status == 200 and body["outputs"][0]["data"] == row, (model, status, body)
        finally:
            traffic.end()
        print(f"answers {dict(traffic.statuses)}")
        assert traffic.wrong == 0 and set(traffic.statuses) <= {200, 503}, traffic.statuses


def emulated(folder: Path, weights: int = 0) -> Path:
    """Profiles of the models on devices of four units: more of them help in proportion."""
    lines = []
    for name, (alpha, beta) in TIMES.items():
        header = {"version": 1, "model": name, "device": "toy", "engine": "none"}
        lines.append({"profile": {**header, "source": "synthesised", "units_total": 4, "weights_bytes": weights}})
        for rows in (1, 2, 4, 8):
            for units in (1, 2, 4):
                time_us = 2 * (alpha + beta * rows) / units
                times = {f"p{part}_us": time_us for part in (50, 95, 99)}
                lines.append({"cell": {"batch": rows, "units": units, **times, "count": 1}})
    path = folder / "toy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


EMULATED = """
[devices]
isolation = "{isolation}"
emulated = [{{ kind = "toy", memory = "1GiB", count = 2, sizes = [1, 2, 4] }}]

[partition]
live = true
period = "200ms"
probation = "300ms"
profiles = ["{profiles}"]

[models.quick]
slo = "80ms"
[models.slow]
slo = "200ms"
[models.rare]
slo = "400ms"
"""


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_gpulets_of_devices_that_are_emulated_follow_the_load_too(tmp_path: Path, isolation: str) -> None:
    config = EMULATED.format(profiles=emulated(tmp_path), isolation=isolation)
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        for crowd in ({"quick": 6, "rare": 1}, {"slow": 8, "rare": 1}):
            before = partition(server)["epoch"]
            traffic = Traffic(server, crowd)
            try:
                until(
                    lambda: partition(server)["epoch"] > before and not partition(server)["changing"],
                    f"another plan for {crowd}: {partition(server)}",
                )
            finally:
                traffic.end()
            assert traffic.wrong == 0 and set(traffic.statuses) == {200}, traffic.statuses
        gpulets = partition(server)["gpulets"]
        print([(g["device"], g["first_unit"], g["units"], [s["workload"] for s in g["slots"]]) for g in gpulets])
        assert {g["device"] for g in gpulets} <= {"gpu0", "gpu1"} and {g["units"] for g in gpulets} <= {1, 2, 4}


def test_what_neighbours_cost_is_learned_and_shown(tmp_path: Path) -> None:
    """Batches on the emulated device take 1.4 times as long beside others, which no profile says."""
    profiles = emulated(tmp_path)
    used = {"utilisation": {"batch": 1, "cache": 0.0, "bandwidth": 0.0}}
    lines = [[line, json.dumps(used)] if '"profile"' in line else [line] for line in profiles.read_text().splitlines()]
    profiles.write_text("\n".join(line for both in lines for line in both) + "\n")
    config = EMULATED.format(profiles=profiles, isolation="none").replace("count = 2", "count = 1")
    config = config.replace("sizes = [1, 2, 4]", "interference = { model = 'gpulet', coefficients = [0.0, 0.0, 0.0, 0.0, 1.4] }")
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        until(lambda: partition(server)["epoch"] > 0, "the first plan")
        plan = {"gpulets": [{**gpulet(0, 2, "quick"), "device": "gpu0"}, {**gpulet(2, 2, "slow", "rare"), "device": "gpu0"}]}
        status, answer, _ = Client(server).post("/v2/partition/plan", plan)
        assert status == 200, answer
        traffic = Traffic(server, {"quick": 2, "slow": 2})
        learned = lambda: (partition(server)["interference"] or [{"observations": 0}])[0]  # noqa: E731
        try:
            until(lambda: learned()["observations"] >= 48, f"batches beside others: {learned()}")
        finally:
            traffic.end()
        found = learned()
        print(found)
        assert found["kind"] == "toy" and found["believed"], found
        assert found["error"]["mean_pct"] < found["error_of_none"]["mean_pct"] / 2, found
        shown = {series: value for series, value in server.metrics().items() if series.startswith("tessera_interference_error_ratio")}
        ratio = lambda word: next(value for series, value in shown.items() if f'interference="{word}"' in series)  # noqa: E731
        assert ratio("learned") < ratio("none") / 2, shown


def test_where_memory_is_short_the_least_valuable_model_leaves_until_it_is_asked_for(tmp_path: Path) -> None:
    config = EMULATED.format(profiles=emulated(tmp_path, 400 << 20), isolation="none")
    config = config.replace("count = 2", "count = 1").replace("live = true", "live = true\nidle = '1h'")
    with Tessera(repository(tmp_path / "models"), config + "\n[repository]\nload = 'explicit'\n") as server:
        placed = lambda: {slot["workload"] for gpulet in partition(server)["gpulets"] for slot in gpulet["slots"]}  # noqa: E731
        operator = Client(server)
        row = [1.0, 2.0, 3.0, 4.0]
        for name in TIMES:
            assert operator.post(f"/v2/repository/models/{name}/load", {})[0] == 200
            assert operator.infer(name, [row], timeout=20_000_000)[0] == 200
        until(lambda: len(placed()) == 2 and not partition(server)["changing"], f"one of three leaves: {placed()}")
        for _ in range(2):
            (gone,) = set(TIMES) - placed()
            status, answer, _ = operator.infer(gone, [row], timeout=20_000_000)
            assert status == 200 and answer["outputs"][0]["data"] == row, (gone, status, answer)
            until(lambda: gone in placed() and len(placed()) == 2, f"`{gone}` is back for another: {placed()}")


def test_what_cannot_be_is_said_before_anything_is_served(tmp_path: Path) -> None:
    binary = os.environ["TESSERA_BIN"]
    for settings, part in (
        ("[lanes]\nshared = true\ncount = 4\n[partition]\nlive = true\n", "lanes.shared: set together with partition.live"),
        ("[partition]\nlive = true\npolicy = 'magic'\n", "partition.policy: `magic`: expected one of tessera"),
        ("[partition]\nlive = true\npolicy = 'fast-gshare'\n", "partition.policy: `fast-gshare`: plans windows of time"),
        (
            "[devices]\nisolation = 'process'\nemulated = [{ kind = 'toy', memory = '1GiB', interference = 'none' }]\n",
            "devices.emulated[0].interference: set together with devices.isolation",
        ),
        ("[partition]\nlive = true\ninterference = 'magic'\n", "partition.interference: "),
        ("[partition]\nlive = true\nperiod = '1ms'\n", "partition.period: 1ms: expected at least 100ms"),
        ("[partition]\nlive = true\n[models.quick]\nlanes = [0]\n", "models.quick.lanes: set together with partition.live"),
    ):
        (tmp_path / "tessera.toml").write_text(settings)
        command = [binary, "serve", "--config", str(tmp_path / "tessera.toml"), "--http", "127.0.0.1:0"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.returncode != 0 and part in answer.stderr, answer
    with Tessera(repository(tmp_path / "models")) as server:
        server.wait_ready()
        status, body, _ = Client(server).post("/v2/partition/freeze", {})
        assert status in (400, 501) and "partition.live = true" in body["error"], (status, body)
