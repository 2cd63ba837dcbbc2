"""The manifests for gateways, KServe and KEDA: valid, and about objects that the chart has."""

from __future__ import annotations

import pytest
import yaml
from api_server import ApiServer
from chart import NAME, NAMESPACE, SETS, Object, one, render, workloads
from programs import ROOT
from schemas import check

FILES = ["gateway/inferencepool.yaml", "keda/scaledobject.yaml", "kserve/runtimes.yaml"]
DEPLOY = ROOT / "deploy"


def load(file: str) -> list[Object]:
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


@pytest.mark.parametrize("file", FILES)
def test_the_objects_fit_their_schemas(file: str) -> None:
    for entry in load(file):
        check(entry)


@pytest.mark.parametrize("file", FILES)
def test_an_api_server_takes_them(file: str, api_server: ApiServer) -> None:
    api_server.apply(load(file))


def test_the_pool_selects_servers_and_names_the_picker() -> None:
    objects = render(SETS["fleet"])
    pool, _, route = load("gateway/inferencepool.yaml")
    assert pool["metadata"]["namespace"] == NAMESPACE
    labels = one(objects, "Deployment", NAME)["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["containerPort"] for port in workloads(objects)["server"]["containers"][0]["ports"]}
    assert pool["spec"]["targetPorts"][0]["number"] in ports
    picker = one(objects, "Service", pool["spec"]["endpointPickerRef"]["name"])
    assert [port["port"] for port in picker["spec"]["ports"]] == [pool["spec"]["endpointPickerRef"]["port"]["number"]]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"][0]["name"] == pool["metadata"]["name"]


def test_the_autoscaler_scales_the_servers() -> None:
    (scaled,) = load("keda/scaledobject.yaml")
    target = scaled["spec"]["scaleTargetRef"]
    assert one(render(SETS["fleet"]), target["kind"], target["name"])["metadata"]["namespace"] == scaled["metadata"]["namespace"]
    (trigger,) = scaled["spec"]["triggers"]
    assert "tessera_fleet_devices_wanted" in trigger["metadata"]["query"]
    assert trigger["metadata"]["ignoreNullValues"] == "false", "no value is not zero devices"


def test_runtimes_of_kserve_are_containers_with_the_ports_of_the_server() -> None:
    runtimes = {entry["metadata"]["name"]: entry["spec"] for entry in load("kserve/runtimes.yaml")}
    assert set(runtimes) == {"tessera", "tessera-grpc"}
    image = workloads(render({}))["server"]["containers"][0]["image"]
    for name, runtime in runtimes.items():
        check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": runtime["containers"]}})
        (container,) = runtime["containers"]
        assert container["name"] == "kserve-container" and container["image"] == image
        assert container["ports"][-1] == {"name": "h2c", "containerPort": 8001, "protocol": "TCP"}
    assert runtimes["tessera"]["containers"][0]["ports"][0]["containerPort"] == 8000
    # Knative allows one port for each container.
    assert len(runtimes["tessera-grpc"]["containers"][0]["ports"]) == 1
