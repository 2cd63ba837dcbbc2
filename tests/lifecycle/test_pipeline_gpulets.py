"""Pipelines whose stages run on gpulets that follow the load."""

from __future__ import annotations

from pathlib import Path

from fixtures.client import Client
from fixtures.partition import gpulet, needs_two_cores, placed, slot, until_view, view
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

# Microseconds of a batch: constant and per row.
TIMES = {"det": (2_000, 1_000), "rec": (4_000, 2_000), "other": (3_000, 1_000)}
OBJECTIVE_MS = 100
SHARE = 0.4
CONFIG = f"""
[lanes]
cores = [[0], [1]]

[partition]
live = true
period = "200ms"
bake_time = "300ms"

[models.other]
slo = "80ms"

[pipelines.ocr]
slo = "{OBJECTIVE_MS}ms"
stages = [{{ model = "det" }}, {{ model = "rec", from = "det" }}]
split = {{ det = {SHARE}, rec = {1 - SHARE:.1f} }}
"""
ROW = [1.0, 2.0, 3.0, 4.0]


def repository(folder: Path) -> Path:
    for name, (alpha, beta) in TIMES.items():
        echo(alpha, beta, max_batch=8).place(folder, name)
    return folder


def clients(server: Tessera, crowd: dict[str, int]) -> Clients:
    return Clients(server, crowd, timeout=5_000_000)


def budgets(server: Tessera, model: str) -> list[float]:
    """Microseconds that the batches of a model may take, on each of its gpulets."""
    return [slot["budget_us"] for row in view(server)["gpulets"] for slot in row["slots"] if slot["workload"] == model]


@needs_two_cores
def test_stages_keep_their_places_while_gpulets_follow_a_changing_mix(tmp_path: Path) -> None:
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        for crowd in ({"ocr": 6, "other": 1}, {"other": 8, "ocr": 1}, {"ocr": 8, "rec": 2}):
            before = view(server)["epoch"]
            with clients(server, crowd) as traffic:
                until_view(server, lambda seen: seen["epoch"] > before and not seen["changing"], f"a plan for {crowd}")
                traffic.wait_for(200)
            traffic.assert_all_answered()
            assert placed(server) == set(TIMES), "every stage keeps a place"
            rates = {model["name"]: model["target"] for model in view(server)["models"]}
            print(crowd, rates)
            assert rates["det"] > 0 and rates["rec"] > 0, "stages are planned for the requests that reach them"
        assert max(budgets(server, "det")) <= SHARE * 1e3 * OBJECTIVE_MS, "det has its share of the objective"
        assert max(budgets(server, "rec")) <= (1 - SHARE) * 1e3 * OBJECTIVE_MS, "rec has its share of the objective"


@needs_two_cores
def test_an_operator_plan_may_name_stages_as_tessera_plan_does(tmp_path: Path) -> None:
    apart = {"gpulets": [gpulet(0, 1, [slot("ocr.det"), slot("other")]), gpulet(1, 1, [slot("ocr.rec")])]}
    with Tessera(repository(tmp_path), CONFIG) as server:
        server.wait_ready()
        operator = Client(server)
        until_view(server, lambda seen: seen["epoch"] > 0, "the first plan")
        with clients(server, {"ocr": 4}) as traffic:
            status, answer, _ = operator.post("/v2/partition/plan", apart)
            assert status == 200, answer
            assert [[slot["workload"] for slot in row["slots"]] for row in view(server)["gpulets"]] == [["det", "other"], ["rec"]]
            status, answer, _ = operator.post("/v2/partition/plan", {"gpulets": [gpulet(0, 2, [slot("det"), slot("other")])]})
            expected = "model `rec` has no slot: expected one at least, or one for ocr.rec"
            assert status == 400 and expected in answer["error"], answer
            traffic.wait_for(300)
        traffic.assert_all_answered()


@needs_two_cores
def test_a_stage_without_a_gpulet_gets_one_or_its_request_ends_with_a_reason(tmp_path: Path) -> None:
    config = CONFIG.replace("live = true", "live = true\nidle = '1s'")
    with Tessera(repository(tmp_path), config) as server:
        server.wait_ready()
        with clients(server, {"other": 3}) as traffic:
            until(lambda: placed(server) == {"other"}, "the stages have no gpulet", 60)
            status, body, headers = Client(server).infer("ocr", [ROW], timeout=1_000)
            assert status == 504 and headers["x-tessera-reason"] == "expired", (status, body)
            assert body["error"] == "model `det`: the deadline passed while the model was activated", body
            series = server.metrics().items()
            refused = {name: value for name, value in series if 'reason="expired"' in name and value > 0}
            assert any('model="ocr"' in name for name in refused) and any('model="det"' in name for name in refused), refused
            status, body, _ = Client(server).infer("ocr", [ROW], timeout=20_000_000)
            assert status == 200 and body["outputs"][0]["data"] == ROW, body
            assert {"det", "rec"} <= placed(server)
        traffic.assert_all_answered()
