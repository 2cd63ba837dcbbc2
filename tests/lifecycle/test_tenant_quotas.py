"""Quotas of tenants on the live server: who is refused and how, and an aggressor next to a victim.

The aggressor's workload is that of loadtest/tenants, which the simulator's tests run too.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from fixtures.client import Client
from fixtures.settings import Settings
from fixtures.synthetic import Synthetic, echo
from fixtures.tessera import Tessera
from tritonclient.utils import InferenceServerException

ROOT = Path(__file__).resolve().parents[2]
AGGRESSOR = ROOT / "loadtest" / "tenants" / "aggressor.toml"
ROW = [1.0, 2.0, 3.0, 4.0]
HEADER = "x-tenant"
QUOTAS = f"""
[server]
tenant_header = "{HEADER}"
[tenants.metered]
requests_per_second = 0.1
requests_burst = 2
[tenants.free]
weight = 2
"""
# Attainment of the victim may change by so much.
POINT = 0.01


class Tenant(Client):
    """A client whose requests name their tenant."""

    def __init__(self, server: Tessera, name: str) -> None:
        super().__init__(server)
        self.name = name

    def post(self, path: str, body: object) -> tuple[int, dict, dict[str, str]]:
        self.connection.request("POST", path, json.dumps(body), {HEADER: self.name})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read()), {k.lower(): v for k, v in answer.getheaders()}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tenants")
    echo(alpha_us=1_000).place(folder, "echo")
    return folder


def outcomes(server: Tessera, tenant: str) -> dict[str, float]:
    """Requests of a tenant by outcome, without outcomes that did not occur."""
    all_of_them = ("answered", "late", "quota", "refused", "failed")
    counts = {o: server.metric("tessera_tenant_requests_total", tenant=tenant, outcome=o) for o in all_of_them}
    return {outcome: count for outcome, count in counts.items() if count}


def test_requests_beyond_a_quota_are_refused_over_http_and_others_are_not(repository: Path) -> None:
    with Tessera(repository, QUOTAS) as server:
        server.wait_ready()
        metered = Tenant(server, "metered")
        assert [metered.infer("echo", [ROW])[0] for _ in range(2)] == [200, 200]
        status, answer, headers = metered.infer("echo", [ROW])
        assert status == 429 and headers["x-tessera-reason"] == "quota", (status, answer, headers)
        assert 1 <= int(headers["retry-after"]) <= 10, headers
        for name in ("free", "default", "stranger"):
            assert [Tenant(server, name).infer("echo", [ROW])[0] for _ in range(4)] == [200] * 4, name
        assert Client(server).infer("echo", [ROW])[0] == 200, "a request without a tenant has no quota"
        assert outcomes(server, "metered") == {"answered": 2, "quota": 1}
        assert outcomes(server, "free") == {"answered": 4}
        assert outcomes(server, "other") == {"answered": 4}
        assert outcomes(server, "default") == {"answered": 5}
        assert server.metric("tessera_tenant_requests_quota", tenant="metered") == pytest.approx(0.1)
        assert server.metric("tessera_tenant_device_us_total", tenant="free") >= 4 * 1_000


def test_requests_beyond_a_quota_are_refused_over_grpc(repository: Path) -> None:
    with Tessera(repository, QUOTAS) as server:
        server.wait_ready()
        tensor = grpcclient.InferInput("INPUT0", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.array([ROW], dtype=np.float32))
        with grpcclient.InferenceServerClient(server.grpc_address) as client:
            for _ in range(2):
                client.infer("echo", [tensor], headers={HEADER: "metered"})
            with pytest.raises(InferenceServerException) as refused:
                client.infer("echo", [tensor], headers={HEADER: "metered"})
            assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED", refused.value
            client.infer("echo", [tensor], headers={HEADER: "free"})
        assert outcomes(server, "metered") == {"answered": 2, "quota": 1}


def test_tenants_and_quotas_change_while_the_server_runs(repository: Path) -> None:
    with Tessera(repository, QUOTAS) as server:
        server.wait_ready()
        settings, metered, late = Settings(server), Tenant(server, "metered"), Tenant(server, "late")
        assert [metered.infer("echo", [ROW])[0] for _ in range(3)] == [200, 200, 429]
        assert late.infer("echo", [ROW])[0] == 200 and outcomes(server, "late") == {}
        changed = QUOTAS.replace("requests_per_second = 0.1\nrequests_burst = 2", "weight = 3")
        settings.write(changed + "[tenants.late]\nrequests_per_second = 0.1\nrequests_burst = 1\n")
        settings.hang_up()
        assert [metered.infer("echo", [ROW])[0] for _ in range(4)] == [200] * 4, "the quota is in force after it was removed"
        assert [late.infer("echo", [ROW])[0] for _ in range(2)] == [200, 429]
        assert outcomes(server, "late") == {"answered": 1, "quota": 1} and outcomes(server, "other") == {"answered": 1}
        assert server.metric("tessera_tenant_requests_quota", tenant="metered") == float("inf")
        (event,) = server.logged("configuration reloaded")
        assert "tenants.late.requests_per_second" in event["settings"] and "tenants.metered.weight" in event["settings"], event
        assert not server.logged("changed in the configuration: takes effect after a restart")
        settings.write(QUOTAS)
        settings.hang_up()
        assert late.infer("echo", [ROW])[0] == 200 and outcomes(server, "other") == {"answered": 2}, "a removed tenant has no quota"
        statuses = [metered.infer("echo", [ROW])[0] for _ in range(3)]
        assert statuses == [200, 200, 429], "a quota that is new starts full"


def test_peers_that_are_not_trusted_cannot_name_a_tenant(repository: Path) -> None:
    untrusted = QUOTAS.replace("[server]", '[server]\ntrusted_peers = ["10.0.0.0/8"]')
    with Tessera(repository, untrusted) as server:
        server.wait_ready()
        metered = Tenant(server, "metered")
        assert [metered.infer("echo", [ROW])[0] for _ in range(4)] == [200] * 4
        assert outcomes(server, "metered") == {} and outcomes(server, "default") == {"answered": 4}


def load(server: Tessera, workload: Path) -> dict[str, dict]:
    """Figures by model of a run of `tessera load`."""
    command = [os.environ["TESSERA_BIN"], "load", workload, "--url", server.base_url, "--tenant-header", HEADER]
    command += ["--duration", "8s", "--warmup", "2s", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    return {model["name"]: model["figures"] for model in json.loads(done.stdout)["models"]}


@pytest.mark.parametrize("borrow", [False, True], ids=["refused", "borrows"])
def test_an_aggressor_at_ten_times_its_quota_does_not_change_the_attainment_of_its_victim(
    tmp_path: Path, borrow: bool
) -> None:
    model = Synthetic(alpha_us=10_000, beta_us=2_000, max_batch=8)
    for name in ("search", "crawler"):
        model.place(tmp_path / "repository", name)
    config = f"""
[server]
tenant_header = "{HEADER}"
[lanes]
count = 2
shared = true
[tenants.search]
[tenants.crawler]
device_seconds_per_second = 0.3
device_seconds_burst = 0.1
borrow = {str(borrow).lower()}
[models.search]
slo = "100ms"
[models.crawler]
slo = "100ms"
"""
    alone = tmp_path / "alone.toml"
    alone.write_text(AGGRESSOR.read_text().partition("[models.crawler]")[0])
    with Tessera(tmp_path / "repository", config) as server:
        server.wait_ready()
        before = load(server, alone)["search"]
        used_before = server.metric("tessera_tenant_device_us_total", tenant="crawler")
        figures = load(server, AGGRESSOR)
        used = (server.metric("tessera_tenant_device_us_total", tenant="crawler") - used_before) / 1e6
    victim, aggressor = figures["search"], figures["crawler"]
    print(
        f"victim: attainment {before['attainment']:.4f} alone, {victim['attainment']:.4f} next to the aggressor; "
        f"aggressor: {aggressor['offered']} offered, {aggressor['answered']} answered, {aggressor['refused']}, "
        f"{used:.2f} s of device time in 8 s"
    )
    assert victim["offered"] == before["offered"] > 200, (before, victim)
    assert "quota" not in victim["refused"], victim
    assert before["attainment"] - victim["attainment"] <= POINT, (before, victim)
    # The quota of 8 s, the burst, and one batch on each lane.
    most = 8 * 0.3 + 0.1 + 2 * 0.026
    if borrow:
        assert used > 2 * most, used
    else:
        assert used <= most * 1.05, used
        assert aggressor["refused"]["quota"] > aggressor["offered"] / 2, aggressor
