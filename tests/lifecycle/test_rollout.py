"""A new version gets a share of the requests, and all of them only if it is as good as the old one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fixtures.client import Client, get
from fixtures.models import place, plus
from fixtures.settings import Settings
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

ROW = [1.0, 2.0, 3.0, 4.0]
# Long, so that a bad version is rolled back by evidence and not by time.
BAKE_S = 120
ROLLOUT = f'''
[models.m]
slo = "60ms"
[models.m.rollout]
canary = 0.2
bake = "{BAKE_S}s"
samples = 50
'''


def post(server: Tessera, path: str) -> dict:
    request = urllib.request.Request(f"http://{server.announced['admin']}{path}", b"", method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


def load(server: Tessera) -> dict:
    return post(server, "/v2/repository/models/m/load")


def rollout(server: Tessera) -> dict:
    return get(f"http://{server.announced['admin']}/v2/models/m/rollout")


def verdict(server: Tessera) -> dict:
    until(lambda: rollout(server)["state"] != "baking", lambda: f"a verdict: {rollout(server)}", BAKE_S)
    return rollout(server)


def versions(server: Tessera) -> dict[str, tuple[str, str]]:
    return {row["version"]: (row["state"], row.get("reason", "")) for row in server_index(server)}


def server_index(server: Tessera) -> list[dict]:
    return Client(server).post("/v2/repository/index", {})[1]


def assert_rolled_back(server: Tessera, cause: str) -> dict:
    view = verdict(server)
    assert view["state"] == "rolled_back" and cause in view["cause"], view
    assert view["figures"]["elapsed_s"] < BAKE_S
    (event,) = server.logged("version rolled back")
    assert event["digest"] == view["canary"]["digest"] and event["requests"] == view["figures"]["canary"]["requests"]
    until(lambda: "2" not in server_ready(server), "version 2 is unloaded")
    state, reason = versions(server)["2"]
    assert state == "UNAVAILABLE" and "rolled back" in reason and cause in reason
    refused = [name for name in server.metrics() if name.startswith("tessera_refusals_total") and 'version="1"' in name]
    assert not [name for name in refused if server.metrics()[name]], "no request of the stable version fails"
    assert server.metric("tessera_rollout_rollbacks_total", model="m") == 1
    assert server.metric("tessera_rollout_active", model="m") == 0
    assert Client(server).infer("m", [ROW])[1]["model_version"] == "1"
    return view


def server_ready(server: Tessera) -> list[str]:
    return [version for version, (state, _) in versions(server).items() if state == "READY"]


def test_a_slow_version_is_rolled_back_and_stays_out(tmp_path: Path) -> None:
    echo(2_000, max_batch=4).place(tmp_path, "m")
    with Tessera(tmp_path, ROLLOUT) as server:
        server.wait_ready()
        echo(100_000, max_batch=4).place(tmp_path, "m", version=2)
        with Clients(server, {"m": 4}):
            assert load(server)["loaded"] == [2]
            assert_rolled_back(server, "answered in time")
        Settings(server).hang_up()
        (event,) = server.logged("configuration reloaded")
        assert server_ready(server) == ["1"], event
        assert load(server)["loaded"] == [2] and rollout(server)["state"] == "baking", "asked for, it is tried again"


@pytest.mark.parametrize("partition", ["", "[partition]\nlive = true\nperiod = '300ms'\n"], ids=["fixed", "live"])
def test_a_good_version_is_promoted_and_no_request_fails(tmp_path: Path, partition: str) -> None:
    echo(2_000, max_batch=4).place(tmp_path, "m")
    settings = partition + ROLLOUT.replace(f"{BAKE_S}s", "2s").replace("60ms", "5s")
    with Tessera(tmp_path, settings) as server:
        server.wait_ready()
        echo(1_000, max_batch=4).place(tmp_path, "m", version=2)
        with Clients(server, {"m": 4}, keep=True) as clients:
            load(server)
            assert server.metric("tessera_rollout_active", model="m") == 1
            view = verdict(server)
            clients.wait_for(50)
        clients.assert_all_answered()
        assert view["state"] == "promoted" and view["figures"]["elapsed_s"] >= 2.0
        requests = {arm: view["figures"][arm]["requests"] for arm in ("stable", "canary")}
        assert abs(requests["canary"] / sum(requests.values()) - 0.2) < 0.02, requests
        until(lambda: server_ready(server) == ["2"], "version 1 is unloaded")
        served = {answer.body["model_version"] for answer in clients.answers}
        assert served == {"1", "2"} and clients.answers[-1].body["model_version"] == "2"
        assert server.metric("tessera_rollout_promotions_total", model="m") == 1


def test_a_version_with_other_outputs_is_rolled_back(tmp_path: Path) -> None:
    place(tmp_path, "m", plus(0.0))
    with Tessera(tmp_path, ROLLOUT.replace("60ms", "5s") + "compare = true\n") as server:
        server.wait_ready()
        place(tmp_path, "m", plus(1.0), version=2)
        with Clients(server, {"m": 4}, is_right=lambda *_: True):
            load(server)
            view = assert_rolled_back(server, "outputs differ")
        assert view["figures"]["disagreed"] == view["figures"]["compared"] > 0, view


def test_a_quantized_version_with_the_same_outputs_is_promoted_when_compared(tmp_path: Path) -> None:
    place(tmp_path, "m", plus(0.0))
    settings = ROLLOUT.replace(f"{BAKE_S}s", "1s").replace("60ms", "5s").replace("samples = 50", "samples = 20")
    with Tessera(tmp_path, settings + "compare = true\n") as server:
        server.wait_ready()
        place(tmp_path, "m", plus(0.001), version=2)
        with Clients(server, {"m": 4}, is_right=lambda *_: True) as clients:
            load(server)
            view = verdict(server)
        assert view["state"] == "promoted" and view["figures"]["compared"] >= 20 and not view["figures"]["disagreed"], view
        # Requests that were run twice are counted once.
        counted = sum(server.metric("tessera_request_seconds_count", model="m", version=version) for version in "12")
        assert counted == clients.answered()


PYTHON = """import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            row = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            {check}
        outputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", output)]) for output in outputs]
"""
CONFIG = """backend: "python"
max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
"""
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def python(repository: Path, version: int, check: str) -> None:
    folder = repository / "m" / str(version)
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(PYTHON.format(check=check))
    (repository / "m" / "config.pbtxt").write_text(CONFIG)


@pytest.mark.parametrize(
    ("check", "cause"),
    [("if row[0][0] != 0: os._exit(1)", "requests fail"), ("if row[0][0] != 0: raise ValueError('new')", "requests fail")],
)
def test_a_version_that_crashes_or_fails_is_rolled_back(tmp_path: Path, check: str, cause: str) -> None:
    python(tmp_path, 1, "pass")
    settings = ROLLOUT.replace("60ms", "5s").replace("[models.m]", "[models.m]\nsample_runs = false")
    with Tessera(tmp_path, settings, environment=ENVIRONMENT) as server:
        server.wait_ready()
        python(tmp_path, 2, check)
        with Clients(server, {"m": 2}, row=lambda *_: ROW):
            load(server)
            assert_rolled_back(server, cause)


TENANTS = """
[server]
tenant_header = "x-tenant"
[tenants.large]
[tenants.small]
"""


class Tenant(Client):
    """A client whose requests name their tenant."""

    def send(self, tenant: str, row: list[float]) -> int:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": row}
        self.connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}), {"x-tenant": tenant})
        answer = self.connection.getresponse()
        answer.read()
        return answer.status


def test_a_version_that_fails_for_one_tenant_only_is_rolled_back(tmp_path: Path) -> None:
    python(tmp_path, 1, "pass")
    settings = TENANTS + ROLLOUT.replace("60ms", "5s")
    with Tessera(tmp_path, settings, environment=ENVIRONMENT) as server:
        server.wait_ready()
        python(tmp_path, 2, "if row[0][0] < 0: raise ValueError('negative')")
        load(server)
        client, sent, failed = Tenant(server), 0, 0
        while rollout(server)["state"] == "baking" and sent < 5_000:
            assert all(client.send("large", ROW) == 200 for _ in range(19))
            failed += client.send("small", [-1.0, 0.0, 0.0, 0.0]) != 200
            sent += 20
        view = assert_rolled_back(server, "requests fail")
        # A failure is 1 % of the canary's requests; for the small tenant, it is all of them.
        assert view["tenant"] == "small" and failed <= 10, (view, failed, sent)
        assert view["figures"]["canary"]["failed"] == failed


def test_too_few_requests_promote_nothing_and_an_operator_may(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    settings = ROLLOUT.replace(f"{BAKE_S}s", "100ms").replace("60ms", "5s").replace("samples = 50", "samples = 1000")

    def models(server: Tessera, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [os.environ["TESSERA_BIN"], "models", *arguments, "m", "--server", server.announced["admin"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    with Tessera(tmp_path, settings) as server:
        server.wait_ready()
        assert "had no roll-out" in models(server, "rollout").stderr
        echo(1_000).place(tmp_path, "m", version=2)
        load(server)
        client = Client(server)
        until(lambda: client.infer("m", [ROW])[0] == 200 and rollout(server)["figures"]["elapsed_s"] > 0.2, "it is baked")
        assert rollout(server)["state"] == "baking"
        shown = models(server, "rollout").stdout
        assert "version 2 gets 20.0 % of the requests" in shown and "more requests are needed" in shown, shown
        assert "rolled back to 1" in models(server, "rollback").stdout
        assert server_ready(server) == ["1"]
        assert models(server, "promote").returncode == 1
        load(server)
        assert "version 2 was promoted" in models(server, "promote").stdout
        assert server_ready(server) == ["2"]
        assert [event["path"] for event in server.logged("change requested")].count("/v2/models/m/rollout/promote") == 2


def test_a_start_with_two_versions_begins_a_roll_out(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        echo(1_000).place(tmp_path, "m", version=version)
    with Tessera(tmp_path, ROLLOUT) as server:
        assert server.is_ready()
        view = rollout(server)
        assert (view["state"], view["stable"]["version"], view["canary"]["version"]) == ("baking", 2, 3), view
        assert server_ready(server) == ["2", "3"]
        assert get(f"{server.base_url}/v2/models/m/config")["version_policy"], "metadata is that of the stable version"
        # To go back to an earlier version needs no trial.
        Settings(server).write(ROLLOUT.replace("[models.m]", "[models.m]\nversions = [1]"))
        Settings(server).hang_up()
        assert server_ready(server) == ["1"]
        assert server.metric("tessera_rollout_active", model="m") == 0


def test_models_with_sequences_are_refused(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    echo(1_000).place(tmp_path, "m", version=2)
    (tmp_path / "m" / "config.pbtxt").write_text("sequence_batching { direct { } }")
    with Tessera(tmp_path, ROLLOUT) as server:
        until(lambda: server.logged("cannot load"), server.log, 30)
        assert "models.m.rollout: is not supported with sequence_batching" in server.logged("cannot load")[0]["reason"]
