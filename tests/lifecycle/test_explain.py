"""`tessera explain`, `GET /v2/explain` and the access log tell why requests were refused, late or slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures.client import Client, get  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

ROW = [[1.0, 2.0, 3.0, 4.0]]
CLIENTS = 8


def explain(server: Tessera, *arguments: str) -> str:
    command = [os.environ["TESSERA_BIN"], "explain", "--server", server.http_address, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer
    return answer.stdout


def test_a_refused_request_is_explained_with_what_would_have_helped(tmp_path: Path) -> None:
    # Long batches, so that a delay of this machine does not change which request would have been admitted.
    echo(alpha_us=400_000).place(tmp_path / "repository", "m")
    log = tmp_path / "access.log"
    config = f"""
        [lanes]
        count = 1
        [models.m]
        slo = "1s"
        [request_log]
        access_log = "{log}"
    """
    with Tessera(tmp_path / "repository", config) as server:
        server.wait_ready()
        answers: list[tuple[int, dict[str, str]]] = []

        def ask() -> None:
            client = Client(server)
            for _ in range(4):
                status, _, headers = client.infer("m", ROW)
                answers.append((status, headers))

        crowd = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join(60)
        refused = [headers["x-request-id"] for status, headers in answers if status == 503]
        answered = [headers["x-request-id"] for status, headers in answers if status == 200]
        assert refused and answered and len(set(refused + answered)) == 4 * CLIENTS

        at_admission = []
        for request in refused:
            told = get(f"{server.base_url}/v2/explain/{request}")
            assert (told["outcome"], told["objective_ms"], told["model"]) == ("refused", 1000.0, "m"), told
            # Others were admitted, and refused later because a batch before them took long.
            admission = told.get("admission", {"earliest_end_ms": 0.0})
            if admission["earliest_end_ms"] > 1000 and told["reason"] == "deadline_unmeetable":
                at_admission.append(told)
        assert any(told["admission"]["rows_before"] >= 1 for told in at_admission), at_admission
        # The one that came closest to its objective.
        told = min(at_admission, key=lambda one: one["admission"]["earliest_end_ms"])
        admission = told["admission"]
        assert admission["lanes"] == 1
        assert admission["earliest_end_with_one_more_lane_ms"] < 1000, told
        assert told["remedies"] == [
            f"with an objective of {admission['earliest_end_ms']:.1f} ms or more it would have been admitted",
            "with one more lane it would have been admitted",
        ]
        text = explain(server, told["id"])
        assert "refused: deadline_unmeetable" in text and told["remedies"][1] in text, text

        told = json.loads(explain(server, answered[-1], "--json"))
        assert told["batch"]["rows"] == 1 and told["stages_ms"]["compute"] >= 400, told
        listed = get(f"{server.base_url}/v2/explain?outcome=refused&model=m&limit=1000")["requests"]
        assert sorted(one["id"] for one in listed) == sorted(refused)
        assert refused[-1] in explain(server, "--outcome", "refused", "--limit", "1000")

        def lines() -> list[dict]:
            return [json.loads(line) for line in log.read_text().splitlines()]

        until(lambda: len(lines()) == 4 * CLIENTS, "a line for each request")
        assert {line["id"] for line in lines() if line["outcome"] == "refused"} == set(refused)
        assert server.metric("tessera_access_log_lost_total") == 0


def test_companions_of_a_batch_and_the_ids_of_clients(tmp_path: Path) -> None:
    echo(alpha_us=200_000, max_batch=8).place(tmp_path / "repository", "m")
    with Tessera(tmp_path / "repository", '[lanes]\ncount = 1\n[models.m]\nslo = "5s"\nbatching = { policy = "triton" }\n') as server:
        server.wait_ready()

        def ask(name: str) -> None:
            client = Client(server)
            body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": ROW[0]}]}
            client.connection.request("POST", "/v2/models/m/infer", json.dumps(body), {"x-request-id": name})
            answer = client.connection.getresponse()
            assert (answer.status, answer.headers["x-request-id"]) == (200, name), answer.read()

        first = threading.Thread(target=ask, args=("first",))
        first.start()
        until(lambda: server.metric("tessera_requests_in_flight") == 1, "the first request runs")
        others = [threading.Thread(target=ask, args=(name,)) for name in ("a", "b", "c")]
        for thread in others:
            thread.start()
        for thread in [first, *others]:
            thread.join(60)
        batches = [get(f"{server.base_url}/v2/explain/{name}")["batch"] for name in ("first", "a", "b", "c")]
        assert batches[0]["companions"] == [] and batches[0]["rows"] == 1
        together = [sorted([name, *batch["companions"]]) for name, batch in zip(("a", "b", "c"), batches[1:])]
        assert together == [["a", "b", "c"]] * 3, batches


def test_unknown_requests_and_wrong_queries_are_refused_by_name(tmp_path: Path) -> None:
    echo(alpha_us=1_000).place(tmp_path / "repository", "m")
    with Tessera(tmp_path / "repository", "[request_log]\nkept = 2\n") as server:
        server.wait_ready()
        client = Client(server)
        ids = [client.infer("m", ROW)[2]["x-request-id"] for _ in range(3)]
        command = [os.environ["TESSERA_BIN"], "explain", "--server", server.http_address]
        for arguments, message in [
            ([ids[0]], f"request `{ids[0]}`: not in the log"),
            (["--outcome", "bad"], "outcome: expected in_time, late, refused, failed or cancelled, got `bad`"),
        ]:
            answer = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
            assert answer.returncode == 1 and message in answer.stderr, answer
        assert ids[2] in explain(server)
        status, _, headers = client.post("/v2/models/m/infer", {"inputs": "none"})
        told = get(f"{server.base_url}/v2/explain/{headers['x-request-id']}")
        assert (status, told["reason"]) == (400, "malformed") and told["message"], told
