"""Repartitioning under load, as clients and operators see it.

No test waits for a time: each step waits, with a limit, for something that the server reports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from fixtures.client import Client, get
from fixtures.partition import at_idle_priority, gpulet, needs_two_cores, placed, slot, until_view, view
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

# Microseconds of a batch: constant and per row.
TIMES = {"quick": (2_000, 1_000), "slow": (12_000, 6_000), "rare": (8_000, 4_000)}
OBJECTIVES = """
[models.quick]
slo = "80ms"
[models.slow]
slo = "200ms"
[models.rare]
slo = "400ms"
"""
CONFIG = f"""
[lanes]
cores = [[0], [1]]

[partition]
live = true
period = "200ms"
bake_time = "300ms"
{OBJECTIVES}"""
EMULATED = (
    """
[devices]
isolation = "{isolation}"
emulated = [{{ kind = "toy", memory = "1GiB", count = 2, sizes = [1, 2, 4] }}]

[partition]
live = true
period = "200ms"
bake_time = "300ms"
profiles = ["{profiles}"]
"""
    + OBJECTIVES
)
ROW = [1.0, 2.0, 3.0, 4.0]


def repository(folder: Path) -> Path:
    for name, (alpha, beta) in TIMES.items():
        echo(alpha, beta, max_batch=8).place(folder, name)
    return folder


def clients(server: Tessera, crowd: dict[str, int]) -> Clients:
    return Clients(server, crowd, timeout=5_000_000)


def until_first_plan(server: Tessera) -> None:
    until_view(server, lambda seen: seen["epoch"] > 0, "the first plan")


def follow(server: Tessera, crowds: list[dict[str, int]]) -> list[int]:
    """Send one mix of requests after another, each until a plan for it is in force; the epochs of the plans."""
    epochs = []
    for crowd in crowds:
        before = view(server)["epoch"]
        with clients(server, crowd) as traffic:
            planned = until_view(server, lambda seen: seen["epoch"] > before and not seen["changing"], f"a plan for {crowd}")
        traffic.assert_all_answered()
        epochs.append(planned["epoch"])
    return epochs


def up(server: Tessera) -> list[str]:
    """Numbers of the lanes that `/metrics` shows as up."""
    series = server.metrics().items()
    return [name.split('"')[1] for name, value in series if name.startswith("tessera_lane_up{") and value == 1]


def busy_seconds(server: Tessera) -> dict[int, float]:
    """Seconds that each lane has run batches."""
    series = server.metrics().items()
    return {int(name.split('"')[1]): value / 1e6 for name, value in series if name.startswith("tessera_lane_busy_us_total{")}


def lanes_up(server: Tessera) -> int:
    listed = len(get(f"{server.base_url}/v2/lanes"))
    return listed if listed == len(up(server)) else -1


@needs_two_cores
def test_gpulets_follow_a_changing_mix_without_losing_a_request(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        epochs = follow(server, [{"quick": 6, "rare": 1}, {"slow": 6, "rare": 1}, {"quick": 4, "slow": 3}])
        seen = view(server)
        print(f"epochs {epochs}: {[(g['first_unit'], g['units'], [s['workload'] for s in g['slots']]) for g in seen['gpulets']]}")
        assert placed(server) == set(TIMES), "every model keeps a place"
        assert any(row["reason"] for row in seen["decisions"]) and seen["history"], seen
        batches = {model["name"]: model["batches"] for model in seen["models"]}
        assert all(batches[name] and batches[name][0]["predicted_p50_us"] > 0 for name in ("quick", "slow")), batches
        started, *stamps = (datetime.fromisoformat(text) for text in [seen["started"], *(entry["at"] for entry in seen["history"])])
        assert started <= stamps[0] and stamps == sorted(stamps), (started, stamps)
        (plan, *_) = server.logged("plan in force")
        assert "units" in plan["gpulets"] and "quick" in plan["gpulets"] and "/s: " in plan["reasons"], plan
        # The number of lanes that take batches is the number of gpulets, once the old ones are closed.
        until(lambda: lanes_up(server) == len(view(server)["gpulets"]), lambda: f"the lanes follow: {lanes_up(server)} up")
        rows = get(f"{server.base_url}/v2/lanes")
        assert {row["state"] for row in rows} == {"up"} and all(row["units"] > 0 for row in rows), rows
        assert {row["lane"] for row in rows} == {int(number) for number in up(server)}


@needs_two_cores
@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_model_of_best_effort_keeps_its_lanes_while_gpulets_move(tmp_path: Path, isolation: str) -> None:
    echo(5_000, 1_000, max_batch=8).place(tmp_path, "job")
    config = f'{CONFIG}\n[models.job]\nclass = "best_effort"\n[devices]\nisolation = "{isolation}"\n'
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()

        def idle_lanes() -> list[dict]:
            return [row for row in get(f"{server.base_url}/v2/lanes") if row.get("idle_priority")]

        before = idle_lanes()
        assert [(row["first_unit"], row["units"]) for row in before] == [(0, 1), (1, 1)], before
        with Clients(server, {"job": 3}) as jobs:
            follow(server, [{"quick": 6, "rare": 1}, {"slow": 6, "rare": 1}, {"quick": 4, "slow": 3}])
            # One client alone has a lane of its own.
            answered = jobs.statuses["job"][200]
            until(lambda: jobs.statuses["job"][200] > answered, "the job goes on", 30)
        jobs.assert_all_answered()
        assert placed(server) == set(TIMES), "plans do without the model of best effort"
        after = idle_lanes()
        assert [row["lane"] for row in after] == [row["lane"] for row in before], (before, after)
        busy = busy_seconds(server)
        assert all(busy[row["lane"]] > 0 for row in after), busy
        if isolation == "process":
            for pid in filter(at_idle_priority, server.children()):
                os.kill(pid, signal.SIGKILL)
            lives = {row["lane"]: row["incarnation"] for row in after}
            until(
                lambda: all(row["incarnation"] > lives[row["lane"]] and row["state"]["state"] == "up" for row in idle_lanes()),
                lambda: f"they are restarted: {idle_lanes()}",
                60,
            )
            with Clients(server, {"job": 2, "quick": 2}) as jobs:
                until(lambda: min(counts[200] for counts in jobs.statuses.values()) > 20, "both are answered", 30)
            jobs.assert_all_answered()


@needs_two_cores
def test_an_operator_freezes_and_thaws_the_plan(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG, ["--set", "partition.frozen=true"]) as server:
        server.wait_ready()
        operator = Client(server)
        with clients(server, {"quick": 4}) as traffic:
            traffic.wait_for(200)
            seen = view(server)
            assert seen["frozen"] and seen["epoch"] == 0 and not seen["gpulets"], seen
            assert operator.post("/v2/partition/thaw", {})[0] == 200
            until_first_plan(server)
            assert operator.post("/v2/partition/freeze", {})[0] == 200
            seen = until_view(server, lambda seen: not seen["changing"], "the change in progress ends")
            assert seen["frozen"], seen
        traffic.assert_all_answered()


@needs_two_cores
def test_an_operator_plan_stays_until_the_operator_thaws_it(tmp_path: Path) -> None:
    apart = {"gpulets": [gpulet(0, 1, [slot("quick"), slot("rare")]), gpulet(1, 1, [slot("slow")])]}
    every = [slot("quick"), slot("slow"), slot("rare")]
    together = {"gpulets": [gpulet(0, 2, every)]}
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        operator = Client(server)
        until_first_plan(server)
        with clients(server, {"quick": 3, "slow": 2, "rare": 1}) as traffic:
            for plan in (apart, together, apart, apart):
                status, answer, _ = operator.post("/v2/partition/plan", plan)
                assert status == 200, answer
                seen = view(server)
                assert seen["operator_plan"] and not seen["changing"], seen
                in_force = [{key: value for key, value in row.items() if key != "id"} for row in seen["gpulets"]]
                assert in_force == plan["gpulets"], in_force
            assert answer["changed"] is False and answer["epoch"] == seen["epoch"], answer
            window = {"window": {"period_us": 1e4, "offset_us": 0.0, "length_us": 5e3}}
            mistakes = {
                "device": {"gpulets": [gpulet(0, 2, every, device="cpu7")]},
                "`slow` has no slot": {"gpulets": [gpulet(0, 1, [slot("quick"), slot("rare")])]},
                "overlap": {"gpulets": [gpulet(0, 2, [slot("quick"), slot("slow")]), gpulet(1, 1, [slot("rare")])]},
                "nothing": {"gpulets": [gpulet(0, 2, [*every, slot("nothing")])]},
                "window": {"gpulets": [{**gpulet(0, 2, every), **window}]},
                "expected `{": {"gpulet": []},
            }
            for words, plan in mistakes.items():
                status, answer, _ = operator.post("/v2/partition/plan", plan)
                assert status == 400 and words in answer["error"], (words, status, answer)
            traffic.wait_for(500)
            assert view(server)["epoch"] == seen["epoch"], "load does not change an operator plan"
            assert operator.post("/v2/partition/freeze", {})[0] == 200
            status, answer, headers = operator.post("/v2/partition/plan", together)
            assert status == 409 and "frozen" in answer["error"] and headers["x-tessera-reason"] == "plan_refused", answer
            assert operator.post("/v2/partition/thaw", {})[0] == 200
            until_view(server, lambda seen: not seen["operator_plan"], "plans follow the load again")
        traffic.assert_all_answered()


@needs_two_cores
def test_models_are_loaded_and_unloaded_while_gpulets_follow_the_load(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        operator = Client(server)
        with clients(server, {"quick": 4}) as traffic:
            until_view(server, lambda seen: seen["epoch"] > 1, "a plan for the load")
            status, body, _ = operator.post("/v2/repository/models/rare/unload", {})
            assert status == 200, body
            until(lambda: "rare" not in placed(server), "the unloaded model leaves the plan")
            status, body, _ = operator.post("/v2/repository/models/rare/load", {})
            assert status == 200, body
            status, body, _ = operator.infer("rare", [ROW])
            assert status == 200 and body["outputs"][0]["data"] == ROW, body
            until(lambda: "rare" in placed(server), "the loaded model joins the plan")
            assert operator.infer("rare", [ROW])[0] == 200
        traffic.assert_all_answered()


@needs_two_cores
def test_an_idle_model_leaves_and_the_next_request_loads_it_again(tmp_path: Path) -> None:
    config = CONFIG.replace("live = true", "live = true\nidle = '1s'")
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()
        with clients(server, {"quick": 3}) as traffic:
            until_first_plan(server)
            until(lambda: placed(server) == {"quick"}, "idle models leave", 60)
            assert server.is_ready(), "idle models do not make the server unready"
            begun = time.monotonic()
            answers: list[tuple] = []
            ask = lambda: answers.append(Client(server).infer("slow", [ROW], timeout=20_000_000))  # noqa: E731
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert len(answers) == 4 and all(a[0] == 200 and a[1]["outputs"][0]["data"] == ROW for a in answers), answers
            print(f"loaded again and answered after {1e3 * (time.monotonic() - begun):.0f} ms")
            assert "slow" in placed(server) and "rare" not in placed(server)
            status, body, _ = Client(server).infer("rare", [ROW], timeout=1_000)
            assert status in (503, 504), (status, body)
            until(lambda: placed(server) == {"quick"}, "the models leave again", 60)
        traffic.assert_all_answered()


@needs_two_cores
def test_a_gpulet_whose_process_is_killed_is_replaced_by_the_next_plan(tmp_path: Path) -> None:
    config = CONFIG.replace("[partition]", "[devices]\nisolation = 'process'\n\n[partition]")
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()
        with clients(server, {"quick": 4, "slow": 2}) as traffic:
            seen = until_view(server, lambda seen: seen["epoch"] > 1 and not seen["changing"], "a plan for the load")
            before = {row["id"] for row in seen["gpulets"]}
            workers = server.children()
            assert len(workers) >= len(before), "each gpulet has its process"
            os.kill(max(workers), signal.SIGKILL)
            until_view(
                server,
                lambda seen: {row["id"] for row in seen["gpulets"]} != before and not seen["changing"],
                "another gpulet",
            )
            for model in TIMES:
                status, body, _ = Client(server).infer(model, [ROW], timeout=5_000_000)
                assert status == 200 and body["outputs"][0]["data"] == ROW, (model, status, body)
        print(f"answers {traffic.total}")
        assert traffic.wrong == 0 and traffic.cut_off == 0 and set(traffic.total) <= {200, 503}, traffic.statuses


def profiles(folder: Path, weights: int = 0) -> Path:
    """Profiles of the models on devices of four units, with times inversely proportional to units."""
    lines = []
    for name, (alpha, beta) in TIMES.items():
        header = {"version": 1, "model": name, "device": "toy", "engine": "none"}
        lines.append({"profile": {**header, "source": "synthesised", "units_total": 4, "weights_bytes": weights}})
        lines.append({"utilisation": {"batch": 1, "cache": 0.0, "bandwidth": 0.0}})
        for rows in (1, 2, 4, 8):
            for units in (1, 2, 4):
                time_us = 2 * (alpha + beta * rows) / units
                times = {f"p{part}_us": time_us for part in (50, 95, 99)}
                lines.append({"cell": {"batch": rows, "units": units, **times, "count": 1}})
    path = folder / "toy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_gpulets_of_emulated_devices_follow_the_load(tmp_path: Path, isolation: str) -> None:
    config = EMULATED.format(profiles=profiles(tmp_path), isolation=isolation)
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        follow(server, [{"quick": 6, "rare": 1}, {"slow": 8, "rare": 1}])
        gpulets = view(server)["gpulets"]
        print([(g["device"], g["first_unit"], g["units"], [s["workload"] for s in g["slots"]]) for g in gpulets])
        assert {g["device"] for g in gpulets} <= {"gpu0", "gpu1"} and {g["units"] for g in gpulets} <= {1, 2, 4}


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_device_that_is_lost_under_load_leaves_the_plan_until_it_is_back(tmp_path: Path, isolation: str) -> None:
    lost = tmp_path / "lost"
    device = "{{ kind = 'toy', memory = '1GiB', sizes = [4]{} }}"
    devices = ", ".join(device.format(more) for more in ("", f", lost_while = '{lost}'"))
    config = EMULATED.format(profiles=profiles(tmp_path), isolation=isolation)
    config = config.replace('{ kind = "toy", memory = "1GiB", count = 2, sizes = [1, 2, 4] }', devices)
    used = lambda seen: {row["device"] for row in seen["gpulets"]}  # noqa: E731
    settled = lambda wanted: lambda seen: used(seen) == wanted and not seen["changing"]  # noqa: E731
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        with clients(server, {"quick": 4, "slow": 24}) as traffic:
            until_view(server, lambda seen: seen["epoch"] > 1 and settled({"gpu0", "gpu1"})(seen), "both devices are needed")
            lost.touch()
            seen = until_view(server, settled({"gpu0"}), "the lost device leaves the plan")
            until(lambda: placed(server) == set(TIMES), lambda: f"every model has a place on the other device: {placed(server)}")
            (row,) = seen["lost_devices"]
            assert row["device"] == "gpu1" and f"`{lost}` exists" in row["reason"] and row["retry_us"] > row["at_us"], row
            assert server.metric("tessera_device_up", device="gpu1") == 0 and server.metric("tessera_device_up", device="gpu0") == 1
            (line, *_) = server.logged("a device is lost: plans do without it")
            assert line["level"] == "ERROR" and line["device"] == "gpu1", line
            before = dict(traffic.total)
            traffic.wait_for(200)
            lost.unlink()
            until_view(server, settled({"gpu0", "gpu1"}), "the device is used again")
            assert "lost_devices" not in view(server) and server.metric("tessera_device_up", device="gpu1") == 1
        print(f"answers {before} by the end of the loss, {traffic.total} in all")
        assert traffic.wrong == 0 and traffic.cut_off == 0 and set(traffic.total) <= {200, 503, 504}, traffic.statuses
        assert server.metric("tessera_invariant_violations_total") == 0


def test_a_model_with_two_replicas_loses_no_request_with_one_of_two_devices(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    device = "{{ kind = 'toy', memory = '1GiB'{} }}"
    devices = ", ".join(device.format(more) for more in ("", f", lost_while = '{lost}'"))
    config = EMULATED.format(profiles=profiles(tmp_path), isolation="none")
    config = config.replace('{ kind = "toy", memory = "1GiB", count = 2, sizes = [1, 2, 4] }', devices)
    config = config.replace("[models.quick]", "[models.quick]\nreplicas_min = 2")
    of_quick = lambda seen: {row["device"] for row in seen["gpulets"] if any(s["workload"] == "quick" for s in row["slots"])}  # noqa: E731
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        with clients(server, {"quick": 2}) as traffic:
            until_view(server, lambda seen: seen["epoch"] > 1 and not seen["changing"] and of_quick(seen) == {"gpu0", "gpu1"}, "a copy on each device")
            lost.touch()
            until_view(server, lambda seen: of_quick(seen) == {"gpu0"} and not seen["changing"], "as many copies as there are devices")
            lost.unlink()
            until_view(server, lambda seen: of_quick(seen) == {"gpu0", "gpu1"}, "a copy on each device again")
        traffic.assert_all_answered()


def test_gslice_enlarges_the_share_of_a_model_that_is_slower_than_its_profile(tmp_path: Path) -> None:
    """Co-located batches on the emulated device take twice the profiled time, which the policy does not plan for."""
    config = EMULATED.format(profiles=profiles(tmp_path), isolation="none").replace("count = 2", "count = 1")
    config = config.replace("sizes = [1, 2, 4]", "interference = { model = 'gpulet', coefficients = [0.0, 0.0, 0.0, 0.0, 2.0] }")
    config = config.replace("live = true", "live = true\npolicy = 'gslice'\ninterference = 'none'")
    units = lambda seen: {s["workload"]: row["units"] for row in seen["gpulets"] for s in row["slots"]}  # noqa: E731
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        first = until_view(server, lambda seen: seen["epoch"] > 1 and not seen["changing"], "a plan without load")
        with clients(server, {"quick": 2, "slow": 6}) as traffic:
            later = until_view(server, lambda seen: sum(units(seen).values()) > sum(units(first).values()), "larger shares")
        print(f"units {units(first)}, then {units(later)}")
        assert traffic.wrong == 0 and traffic.cut_off == 0, traffic.statuses


def test_interference_is_learned_and_reported(tmp_path: Path) -> None:
    """Co-located batches on the emulated device take 1.4 times the profiled time."""
    config = EMULATED.format(profiles=profiles(tmp_path), isolation="none").replace("count = 2", "count = 1")
    config = config.replace("sizes = [1, 2, 4]", "interference = { model = 'gpulet', coefficients = [0.0, 0.0, 0.0, 0.0, 1.4] }")
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        until_first_plan(server)
        pair = [gpulet(0, 2, [slot("quick")], "gpu0"), gpulet(2, 2, [slot("slow"), slot("rare")], "gpu0")]
        status, answer, _ = Client(server).post("/v2/partition/plan", {"gpulets": pair})
        assert status == 200, answer
        with clients(server, {"quick": 2, "slow": 2}):
            enough = lambda seen: seen["interference"] and seen["interference"][0]["observations"] >= 48  # noqa: E731
            learned = until_view(server, enough, "observations of co-located batches")["interference"][0]
        print(learned)
        assert learned["device_type"] == "toy" and learned["used_by_plans"], learned
        assert learned["error"]["mean_pct"] < learned["error_uncorrected"]["mean_pct"] / 2, learned
        shown = {series: value for series, value in server.metrics().items() if series.startswith("tessera_interference_error_ratio")}
        ratio = lambda word: next(value for series, value in shown.items() if f'interference="{word}"' in series)  # noqa: E731
        assert ratio("learned") < ratio("none") / 2, shown


def with_quota(first_unit: int, units: int, slots: list[dict], offset_ms: float, length_ms: float) -> dict:
    """A gpulet with a quota in windows of 40 ms."""
    window = {"period_us": 40e3, "offset_us": 1e3 * offset_ms, "length_us": 1e3 * length_ms}
    return {**gpulet(first_unit, units, slots, device="gpu0"), "window": window}


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_gshare_gpulets_share_units_in_time_by_quotas(tmp_path: Path, isolation: str) -> None:
    config = EMULATED.format(profiles=profiles(tmp_path), isolation=isolation)
    config = config.replace("count = 2", "count = 1").replace("live = true", "live = true\npolicy = 'fast-gshare'")
    # `slow` takes the whole device for half of the time, the others half of it each for the other half.
    plan = [
        with_quota(0, 4, [slot("slow", 4, 18_500.0)], 0, 20),
        with_quota(0, 2, [slot("quick", 4, 6_500.0)], 20, 20),
        with_quota(2, 2, [slot("rare", 2, 16_500.0)], 20, 20),
    ]
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        until_first_plan(server)
        status, answer, _ = Client(server).post("/v2/partition/plan", {"gpulets": plan})
        assert status == 200, answer
        # All want more than their quota, so each lane is busy whenever it has a token.
        with clients(server, {"slow": 12, "quick": 12, "rare": 12}) as traffic:
            for model in TIMES:
                traffic.wait_for(30, model)
            whole = [row["lane"] for row in get(f"{server.base_url}/v2/lanes") if row["units"] == 4]
            halves = [row["lane"] for row in get(f"{server.base_url}/v2/lanes") if row["units"] == 2]
            before, begun = busy_seconds(server), time.monotonic()
            for model in TIMES:
                traffic.wait_for(60, model)
            ended = time.monotonic()
            after = busy_seconds(server)
            busy = {lane: after[lane] - before[lane] for lane in [*whole, *halves]}
        statuses = set(traffic.total)
        assert statuses <= {200, 503, 504} and traffic.wrong == 0, traffic.statuses
        (own,) = (busy[lane] for lane in whole)
        print(f"{isolation}: busy {busy} in {ended - begun:.2f} s, {traffic.statuses}")
        # Lanes that need the same units do not run at once; a scrape may miss a batch.
        assert all(own + busy[lane] < 1.15 * (ended - begun) for lane in halves), (busy, ended - begun)
        assert own > 0 and all(busy[lane] > 0 for lane in halves), busy


def test_gshare_plans_quotas_that_follow_the_load(tmp_path: Path) -> None:
    config = EMULATED.format(profiles=profiles(tmp_path), isolation="none")
    config = config.replace("live = true", "live = true\npolicy = 'fast-gshare'")
    with Tessera(repository(tmp_path / "models"), config) as server:
        server.wait_ready()
        follow(server, [{"quick": 6, "rare": 1}, {"slow": 8, "rare": 1}])
        gpulets = view(server)["gpulets"]
        print([(g["device"], g["first_unit"], g["units"], g["window"], g["slots"]) for g in gpulets])
        assert all(g["window"]["length_us"] <= g["window"]["period_us"] for g in gpulets)
        assert placed(server) == set(TIMES), "every model keeps a place"


def test_if_memory_is_short_the_least_valuable_model_leaves_until_its_next_request(tmp_path: Path) -> None:
    config = EMULATED.format(profiles=profiles(tmp_path, 400 << 20), isolation="none")
    config = config.replace("count = 2", "count = 1").replace("live = true", "live = true\nidle = '1h'")
    with Tessera(repository(tmp_path / "models"), config + "\n[repository]\nload = 'explicit'\n") as server:
        operator = Client(server)
        for name in TIMES:
            assert operator.post(f"/v2/repository/models/{name}/load", {})[0] == 200
            assert operator.infer(name, [ROW], timeout=20_000_000)[0] == 200
        until(lambda: len(placed(server)) == 2 and not view(server)["changing"], "one of three leaves", 60)
        for _ in range(2):
            (absent,) = set(TIMES) - placed(server)
            status, answer, _ = operator.infer(absent, [ROW], timeout=20_000_000)
            assert status == 200 and answer["outputs"][0]["data"] == ROW, (absent, status, answer)
            until(lambda: absent in placed(server) and len(placed(server)) == 2, f"`{absent}` replaces another model", 60)


def test_an_impossible_configuration_is_rejected_at_start(tmp_path: Path) -> None:
    binary = os.environ["TESSERA_BIN"]
    for settings, part in (
        ("[lanes]\nshared = true\ncount = 4\n[partition]\nlive = true\n", "lanes.shared: set together with partition.live"),
        ("[partition]\nlive = true\npolicy = 'magic'\n", "partition.policy: `magic`: expected one of tessera"),
        ("[partition]\nlive = true\nquota_limit = 1.5\n", "partition.quota_limit: 1.5: expected 0 to 1"),
        (
            "[devices]\nisolation = 'process'\nemulated = [{ kind = 'toy', memory = '1GiB', interference = 'none' }]\n",
            "devices.emulated[0].interference: set together with devices.isolation",
        ),
        ("[partition]\nlive = true\ninterference = 'magic'\n", "partition.interference: "),
        ("[partition]\nlive = true\nperiod = '1ms'\n", "partition.period: 1ms: expected at least 100ms"),
        ("[models.quick]\nreplicas_min = 2\n", "models.quick.replicas_min: has no effect without `partition.live`"),
        (
            "[partition]\nlive = true\n[models.quick]\nreplicas_min = 2\n",
            "models.quick.replicas_min: 2: fault domains of the devices: 1: expected at most as many",
        ),
        ("[partition]\nlive = true\n[models.quick]\nlanes = [0]\n", "models.quick.lanes: cannot be combined with `partition.live`"),
    ):
        (tmp_path / "tessera.toml").write_text(settings)
        command = [binary, "serve", "--config", str(tmp_path / "tessera.toml"), "--http", "127.0.0.1:0"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.returncode != 0 and part in answer.stderr, answer
    with Tessera(repository(tmp_path / "models")) as server:
        server.wait_ready()
        status, body, _ = Client(server).post("/v2/partition/freeze", {})
        assert status in (400, 501) and "partition.live = true" in body["error"], (status, body)
