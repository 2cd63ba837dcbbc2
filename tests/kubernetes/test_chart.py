"""What users and operators get from the chart."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml
from chart import CONFIG, DIGEST, NAME, NAMESPACE, SETS, Object, environment_of, one, render, server_of, workloads
from programs import CHART, ROOT

DEPLOY = ROOT / "deploy"


@pytest.mark.parametrize("name", sorted(SETS))
def test_pods_have_no_privileges(name: str) -> None:
    """The restrictions of the pod security standard `restricted`, and a root folder that cannot be written."""
    for component, pod in workloads(render(SETS[name])).items():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in pod["volumes"]), component
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_user_is_the_one_of_the_image() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "image/Containerfile").read_text(), re.MULTILINE)
    assert user
    security = workloads(render({}))["server"]["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (int(user[1]), int(user[2]))


def test_the_version_is_the_one_of_the_program() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert server_of(render({}))["image"] == f"tessera:{version}"


@pytest.mark.parametrize(("lame_duck", "grace"), [(5, 20), (0, 1), (60, 3600)])
def test_a_pod_has_more_time_to_stop_than_its_server(lame_duck: int, grace: int) -> None:
    objects = render({"server": {"lameDuckSeconds": lame_duck, "graceSeconds": grace}})
    environment = environment_of(server_of(objects))
    assert environment["TESSERA_SERVER_LAME_DUCK"] == f"{lame_duck}s"
    assert environment["TESSERA_SERVER_GRACE"] == f"{grace}s"
    assert workloads(objects)["server"]["terminationGracePeriodSeconds"] >= lame_duck + grace + 10


def test_a_changed_configuration_replaces_pods_unless_servers_watch_it() -> None:
    def annotations(config: str, change: str) -> Object:
        deployment = one(render({"server": {"config": config, "configChange": change}}), "Deployment", NAME)
        return deployment["spec"]["template"]["metadata"]["annotations"]

    assert annotations(CONFIG, "restart") != annotations("", "restart")
    assert annotations(CONFIG, "watch") == annotations("", "watch")
    watching = server_of(render({"server": {"configChange": "watch"}}))
    assert environment_of(watching)["TESSERA_SERVER_WATCH_CONFIG"] == "true"
    # Kubernetes does not update a file that is mounted by itself.
    (mount,) = [mount for mount in watching["volumeMounts"] if mount["name"] == "config"]
    assert "subPath" not in mount


def test_one_pod_has_all_devices_of_a_node() -> None:
    gpus = render(SETS["gpus"])
    assert server_of(gpus)["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": 4}
    pod = workloads(gpus)["server"]
    (alone,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert alone["topologyKey"] == "kubernetes.io/hostname"
    # Its labels are those of the pods themselves.
    labels = one(gpus, "Deployment", NAME)["spec"]["template"]["metadata"]["labels"]
    assert alone["labelSelector"]["matchLabels"].items() <= labels.items()
    # A new pod needs the devices of an old one.
    assert one(gpus, "Deployment", NAME)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}

    claimed = render(SETS["daemonset"])
    template = one(claimed, "ResourceClaimTemplate", f"{NAME}-devices")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}
    pod = workloads(claimed)["server"]
    assert pod["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": template["metadata"]["name"]}]
    assert server_of(claimed)["resources"]["claims"] == [{"name": "devices"}]
    assert "nvidia.com/gpu" not in json.dumps(server_of(claimed))

    cores = server_of(render({}))
    assert "claims" not in cores["resources"] and "TESSERA_DEVICES_GPUS" not in environment_of(cores)


def test_own_affinity_is_kept_with_one_pod_for_each_node() -> None:
    affinity = workloads(render(SETS["everything"]))["server"]["affinity"]
    assert affinity["nodeAffinity"]
    keys = [term["topologyKey"] for term in affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]]
    assert keys == ["rack", "kubernetes.io/hostname"]


def test_services_select_the_pods_and_their_ports() -> None:
    objects = render(SETS["fleet"])
    pods = {
        entry["metadata"]["name"]: entry["spec"]["template"]
        for entry in objects
        if entry["kind"] in ("Deployment", "DaemonSet", "StatefulSet")
    }
    for entry in objects:
        if entry["kind"] in ("Service", "PodDisruptionBudget"):
            selector = entry["spec"]["selector"]
            selector = selector.get("matchLabels", selector)
            (pod,) = [pod for pod in pods.values() if selector.items() <= pod["metadata"]["labels"].items()]
            named = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
            for port in entry["spec"].get("ports", []):
                assert named[port["targetPort"]] == port["port"], entry["metadata"]["name"]


def test_labels_of_pods_do_not_change_what_a_selector_says() -> None:
    """Kubernetes refuses an upgrade that changes a selector, so it has no version and nothing of the user."""
    selectors = {
        json.dumps(one(render(values), "Deployment", NAME)["spec"]["selector"], sort_keys=True)
        for values in ({}, {"image": {"digest": DIGEST}}, {"server": {"podLabels": {"team": "search"}}})
    }
    assert len(selectors) == 1


def test_a_disruption_removes_one_server_at_a_time() -> None:
    assert one(render({}), "PodDisruptionBudget", NAME)["spec"]["maxUnavailable"] == 1
    kinds = [entry["kind"] for entry in render(SETS["nothing"])]
    assert "PodDisruptionBudget" not in kinds and "NetworkPolicy" not in kinds


def test_an_autoscaler_may_decide_the_number_of_replicas() -> None:
    assert "replicas" not in one(render(SETS["fleet"]), "Deployment", NAME)["spec"]
    assert one(render({}), "Deployment", NAME)["spec"]["replicas"] == 1


def test_network_policies_let_clients_and_the_fleet_in() -> None:
    policies = [entry for entry in render(SETS["everything"]) if entry["kind"] == "NetworkPolicy"]
    assert {policy["metadata"]["name"].removeprefix("inference-") for policy in policies} == {"server", "picker", "leader"}
    by_name = {policy["metadata"]["name"].removeprefix("inference-"): policy["spec"]["ingress"] for policy in policies}
    requests, metrics = by_name["server"]
    assert [port["port"] for port in requests["ports"]] == ["http", "grpc"]
    assert len(requests["from"]) == 2, "clients, and pods of this release"
    assert len(by_name["picker"][0]["from"]) == 4, "clients, servers, the other pickers, and the leader"
    assert [port["port"] for port in metrics["ports"]] == ["metrics"]
    # No policy opens the admin address: it is for the agent in the same pod.
    assert "8003" not in json.dumps(policies)


def test_rules_and_dashboard_are_those_of_the_repository() -> None:
    for copied, source in [("tessera.rules.yml", "prometheus"), ("tessera.json", "grafana")]:
        assert (CHART / "files" / copied).read_bytes() == (DEPLOY / source / copied).read_bytes(), (
            f"run: cp deploy/{source}/{copied} deploy/helm/tessera/files/"
        )
    objects = render(SETS["everything"])
    rules = yaml.safe_load((DEPLOY / "prometheus/tessera.rules.yml").read_text())
    assert one(objects, "PrometheusRule", "inference")["spec"] == rules
    text = one(objects, "ConfigMap", "inference-dashboard")["data"]["tessera.json"]
    source = (DEPLOY / "grafana/tessera.json").read_text()
    # A sidecar of Grafana does not ask for the data source.
    assert "${DS_PROMETHEUS}" in source and "${DS_PROMETHEUS}" not in text
    assert json.loads(text) == json.loads(source.replace("${DS_PROMETHEUS}", "main"))


@pytest.mark.parametrize(("name", "kind", "key"), [
    ("everything", "PodMonitor", "podMetricsEndpoints"),
    ("daemonset", "ServiceMonitor", "endpoints"),
])
def test_monitors_give_servers_the_job_that_the_alerts_name(name: str, kind: str, key: str) -> None:
    objects = render(SETS[name])
    monitor = one(objects, kind, SETS[name].get("fullnameOverride", NAME))
    (endpoint,) = monitor["spec"][key]
    rules = (DEPLOY / "prometheus/tessera.rules.yml").read_text()
    (job,) = re.findall(r'up\{job="(\w+)"\}', rules)
    assert {"action": "replace", "targetLabel": "job", "replacement": job} in endpoint["relabelings"]
    assert endpoint["scheme"] == ("https" if name == "everything" else "http")
    if kind == "ServiceMonitor":
        selected = [
            entry["metadata"]["name"]
            for entry in objects
            if entry["kind"] == "Service"
            and monitor["spec"]["selector"]["matchLabels"].items() <= entry["metadata"]["labels"].items()
        ]
        assert selected == [f"{NAME}-nodes"], "each server is scraped once"


def test_definitions_of_the_fleet_are_those_of_the_repository() -> None:
    source = DEPLOY / "crds"
    if not source.is_dir():
        pytest.skip("deploy/crds does not exist yet")
    texts = {path.name: path.read_text() for path in source.glob("*.yaml")}
    copies = {path.name: path.read_text() for path in (CHART / "crds").glob("*.yaml")}
    assert texts == copies, "run: mkdir -p deploy/helm/tessera/crds && cp deploy/crds/*.yaml deploy/helm/tessera/crds/"


def test_all_objects_are_in_the_namespace_of_the_release() -> None:
    clusterwide = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    for entry in render(SETS["everything"]):
        if entry["kind"] not in clusterwide:
            assert entry["metadata"]["namespace"] == NAMESPACE
        else:
            # Two releases do not share an object of the cluster.
            assert entry["metadata"]["name"].startswith(f"{NAMESPACE}-inference-")


def test_agents_copy_files_of_models_to_a_folder_that_servers_only_read() -> None:
    pod = workloads(render(SETS["sources"]))["server"]
    (agent,), (server,) = pod["initContainers"], pod["containers"]
    assert "--repository=/models" in agent["args"]
    mounts = lambda container: {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}  # noqa: E731
    assert (mounts(agent)["models"], mounts(server)["models"]) == (False, True)
    assert {"name": "models", "emptyDir": {"sizeLimit": "64Gi"}} in pod["volumes"]
    assert environment_of(server)["TESSERA_REPOSITORY_PATH"] == "/models"
    assert environment_of(agent)["AWS_REGION"] == "eu-central-1" and agent["envFrom"]
