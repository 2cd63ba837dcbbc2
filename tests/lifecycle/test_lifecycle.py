"""Requests while models change, deadlines pass, clients overload the server, and the server stops.

No test waits for a time: each step waits, with a limit, for something that the server reports.
"""

from __future__ import annotations

import json
import http.client
import shutil
import signal
import time
from pathlib import Path

import pytest
from fixtures import models
from fixtures.client import Client, get
from fixtures.models import dense, plus
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

ZEROS = [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("engine", ["tract", "ort"])
def test_a_reload_under_load_fails_no_request(tmp_path: Path, engine: str) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    config = f'[repository]\nengine = "{engine}"\n[models.plus]\nslo = "5s"\n'
    with Tessera(tmp_path, config=config) as server:
        server.wait_ready()
        operator = Client(server)
        row = [0.0, 1.0, 2.0, 3.0]
        same_version = lambda _, sent, data: {b - a for a, b in zip(sent, data)} == {data[0]}  # noqa: E731
        with Clients(server, {"plus": 4}, lambda *_: row, same_version, keep=True) as clients:
            for constant in range(2, 12):
                models.place(tmp_path, "plus", plus(float(constant)))
                status, body, _ = operator.post("/v2/repository/models/plus/load", {})
                assert status == 200, body
                _, body, _ = operator.infer("plus", [ZEROS])
                assert body["outputs"][0]["data"] == [float(constant)] * 4, "an old version answers after the reload"
                clients.wait_for(20)
        clients.assert_all_answered()
        seen = {answer.data[0] for answer in clients.answers}
        assert seen <= {float(constant) for constant in range(1, 12)} and len(seen) > 5


def test_a_half_copied_version_never_serves(tmp_path: Path) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    whole = dense(64).SerializeToString()
    with Tessera(tmp_path, config="") as server:
        server.wait_ready()
        client = Client(server)
        half = tmp_path / "plus" / "2"
        half.mkdir()
        (half / "model.onnx").write_bytes(whole[: len(whole) // 2])
        status, body, _ = client.post("/v2/repository/models/plus/load", {})
        assert status >= 400 and "plus" in body["error"], body
        status, body, _ = client.infer("plus", [ZEROS])
        assert status == 200 and body["model_version"] == "1"
        index = {row["version"]: row for row in client.post("/v2/repository/index", {})[1]}
        assert index["1"]["state"] == "READY" and index["2"]["state"] == "UNAVAILABLE" and index["2"]["reason"]
        shutil.rmtree(half)
        models.place(tmp_path, "plus", plus(2.0), version=2)
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        status, body, _ = client.infer("plus", [ZEROS])
        assert body["model_version"] == "2" and body["outputs"][0]["data"] == [2.0] * 4


@pytest.mark.parametrize("engine", ["tract", "ort"])
def test_unloading_releases_memory(tmp_path: Path, engine: str) -> None:
    width = 1536  # 9 MiB of weights
    models.place(tmp_path, "dense", dense(width))
    models.place(tmp_path, "plus", plus(1.0))
    with Tessera(tmp_path, config=f'[repository]\nengine = "{engine}"\nload = "explicit"\n') as server:
        client = Client(server)
        # The first model loads the engine, which stays.
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        assert client.infer("plus", [ZEROS])[0] == 200
        start = server.rss_bytes()
        sizes = []
        for _ in range(100):
            assert client.post("/v2/repository/models/dense/load", {})[0] == 200
            assert client.infer("dense", [[1.0] * width])[0] == 200
            assert client.post("/v2/repository/models/dense/unload", {})[0] == 200
            sizes.append(server.rss_bytes())
            assert client.infer("dense", [[1.0] * width])[0] == 404
        shown = [round(size / 2**20, 1) for size in [start, *sizes[:3], *sizes[-3:]]]
        print(f"{engine}: MiB at the start, after the first three and after the last three cycles: {shown}")
        assert sizes[-1] - start < 16 * 2**20, shown


def test_requests_that_cannot_meet_their_deadline_are_rejected_and_never_run(tmp_path: Path) -> None:
    echo(20_000).place(tmp_path, "slow")
    config = '[repository]\nengine = "synthetic"\n[lanes]\ncount = 1\n[models.slow]\nslo = "200ms"\n'
    with Tessera(tmp_path, config=config) as server:
        server.wait_ready()
        with Clients(server, {"slow": 24}, keep=True) as clients:
            clients.wait_for(100)
        statuses = clients.total
        assert set(statuses) <= {200, 503, 504} and statuses[503] + statuses[504] > 0, statuses
        for answer in clients.answers:
            if answer.status != 200:
                assert answer.headers["x-tessera-reason"] in {"deadline_unmeetable", "shed", "expired"}, answer
                assert "deadline" in answer.body["error"]
        (stats,) = get(f"{server.base_url}/v2/models/slow/stats")["model_stats"]
        assert stats["execution_count"] == statuses[200], "a rejected request was run"
        queued_us = [int(answer.headers["x-tessera-queue-us"]) for answer in clients.answers if answer.status == 200]
        assert max(queued_us) <= 200_000, "a request started after its deadline"
        print(f"{statuses[200]} answered, {statuses[503]} rejected at arrival, {statuses[504]} expired in the queue")


def test_sigterm_completes_requests_in_flight_and_rejects_new_ones(tmp_path: Path) -> None:
    echo(400_000).place(tmp_path, "slow")
    models.place(tmp_path, "plus", plus(1.0))
    server = Tessera(tmp_path)
    server.wait_ready()
    slow = Clients(server, {"slow": 1})
    with Clients(server, {"plus": 4}, lambda *_: ZEROS, lambda _, sent, data: data == [1.0] * 4, keep=True) as quick:
        quick.wait_for(50)
        # After an answer, the slow client sends its next request immediately, and that one runs for 400 ms.
        slow.wait_for(1)
        quick.wait_for(20)
        answered = slow.answered()
        until(lambda: server.metric("tessera_requests_in_flight") >= 1, "no request is in flight")
        server.process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        until(lambda: not server.is_ready(), "the server is still ready after SIGTERM")
        print(f"not ready {(time.monotonic() - sent) * 1e3:.1f} ms after SIGTERM")
    for answer in quick.answers:
        assert answer.status == 200 or (answer.status, answer.headers["x-tessera-reason"]) == (503, "draining"), answer
    slow.stop()
    assert slow.answered() > answered, "the request in flight was lost"
    assert set(slow.total) <= {200, 503} and slow.wrong == quick.wrong == 0, slow.total
    # A second signal would end the drain early.
    server.process.wait(40)
    assert server.stop() == 0


def test_symbolic_links_out_of_the_repository_are_not_followed(tmp_path: Path) -> None:
    outside, repository = tmp_path / "outside", tmp_path / "repository"
    models.place(outside, "secret", plus(1.0))
    models.place(repository, "plus", plus(1.0))
    (repository / "linked").symlink_to(outside / "secret")
    (repository / "inner" / "1").mkdir(parents=True)
    (repository / "inner" / "1" / "model.onnx").symlink_to(outside / "secret" / "1" / "model.onnx")
    with Tessera(repository, config="", options=["--load-mode", "explicit"]) as server:
        client = Client(server)
        assert client.post("/v2/repository/models/plus/load", {})[0] == 200
        for name in ["linked", "inner", "..%2foutside%2fsecret", "secret"]:
            status, body, _ = client.post(f"/v2/repository/models/{name}/load", {})
            assert status >= 400, (name, body)
            assert client.infer(name, [ZEROS])[0] == 404
        assert client.infer("plus", [ZEROS])[0] == 200


def test_a_model_that_its_engine_cannot_run_is_reported_with_the_reason(tmp_path: Path) -> None:
    models.place(tmp_path, "halves", models.identity("BF16", ["N", "M"]))
    with Tessera(tmp_path, config='[models.halves]\nengine = "tract"\n') as server:
        (row,) = Client(server).post("/v2/repository/index", {})[1]
        assert row["state"] == "UNAVAILABLE"
        for word in ("halves", "tract"):
            assert word in row["reason"], row
        print(row["reason"])


def test_a_model_that_fails_to_load_makes_the_server_unready_while_others_serve(tmp_path: Path) -> None:
    models.place(tmp_path, "plus", plus(1.0))
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"not a model")
    with Tessera(tmp_path, config="") as server:
        client = Client(server)
        assert not server.is_ready()
        assert client.infer("plus", [ZEROS])[0] == 200
        status, body, _ = client.infer("broken", [ZEROS])
        assert status == 404 and "broken" in body["error"]
        assert client.post("/v2/repository/models/broken/unload", {})[0] == 200
        assert server.is_ready()


def test_a_page_of_another_site_cannot_manage_a_server_without_keys(tmp_path: Path) -> None:
    """Its name may resolve to this machine (DNS rebinding), but the browser sends that name."""
    echo(1_000).place(tmp_path, "calc")
    with Tessera(tmp_path, '[server]\nadmin_names = ["tessera.example"]\n') as server:
        server.wait_ready()

        def ask(method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection(server.http_address, timeout=20)
            connection.request(method, path, body, {"host": server.http_address} | headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        infer = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
        unload = "/v2/repository/models/calc/unload"
        for evil in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            for method, path in (("GET", "/v2/lanes"), ("GET", "/v2/config"), ("POST", unload), ("POST", "/v2/logging")):
                status, problem = ask(method, path, "{}" if method == "POST" else None, **evil)
                assert status == 403 and "header" in problem, (method, path, evil, problem)
            assert ask("POST", "/v2/models/calc/infer", infer, **evil)[0] == 200, "a proxy may name itself"
            assert ask("GET", "/v2/health/ready", **evil)[0] == 200
        assert ask("GET", "/v2/lanes", host="tessera.example")[0] == 200
        assert ask("POST", unload, "{}")[0] == 200
