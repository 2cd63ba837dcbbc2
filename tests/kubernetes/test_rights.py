"""The parts of a fleet have the rights that they need and no more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from api_server import ApiServer
from chart import NAME, NAMESPACE, SETS, Object, one, render, workloads
from fixtures.wait import until

READ = ["get", "list", "watch"]
RIGHTS = {
    "leader": {
        "coordination.k8s.io/leases": ["create"],
        "coordination.k8s.io/leases/tessera-leader": ["get", "update"],
        "discovery.k8s.io/endpointslices": READ,
        "tessera.dev/models": READ,
        "tessera.dev/servingpools": READ,
        "tessera.dev/models/status": ["patch"],
        "tessera.dev/servingpools/status": ["patch"],
        "tessera.dev/nodeplans": [*READ, "create", "update", "patch", "delete"],
        "tessera.dev/nodeplans/status": ["get"],
    },
    "picker": {"tessera.dev/nodeplans": READ, "discovery.k8s.io/endpointslices": READ, "/pods": READ},
    # The agent, which shares a pod with the server.
    "server": {"tessera.dev/nodeplans": [*READ, "create", "patch"], "tessera.dev/nodeplans/status": ["patch"]},
}


def test_each_part_has_exactly_its_rights() -> None:
    objects = render(SETS["fleet"])
    assert {entry["metadata"]["name"] for entry in objects if entry["kind"] == "Role"} == {f"{NAME}-{part}" for part in RIGHTS}
    (role,) = (entry for entry in objects if entry["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": READ}], "only to see which nodes work"
    (binding,) = (entry for entry in objects if entry["kind"] == "ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": f"{NAME}-leader", "namespace": NAMESPACE}]
    for part, expected in RIGHTS.items():
        granted: dict[str, list[str]] = {}
        for rule in one(objects, "Role", f"{NAME}-{part}")["rules"]:
            (group,) = rule["apiGroups"]
            for resource in rule["resources"]:
                granted["/".join([group, resource, *rule.get("resourceNames", [])])] = rule["verbs"]
        assert granted == expected
        binding = one(objects, "RoleBinding", f"{NAME}-{part}")
        assert binding["roleRef"]["name"] == f"{NAME}-{part}"
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": f"{NAME}-{part}", "namespace": NAMESPACE}]
        assert workloads(objects)[part]["serviceAccountName"] == f"{NAME}-{part}"
        assert one(objects, "ServiceAccount", f"{NAME}-{part}")["automountServiceAccountToken"] is False


def test_arguments_name_objects_of_the_chart() -> None:
    objects = render(SETS["fleet"])
    (leader,), (picker,) = (workloads(objects)[part]["containers"] for part in ("leader", "picker"))
    (lease,) = [word.removeprefix("--lease=") for word in leader["args"] if word.startswith("--lease=")]
    assert f"coordination.k8s.io/leases/{lease}" in RIGHTS["leader"]
    (service,) = [word.removeprefix("--service=") for word in picker["args"] if word.startswith("--service=")]
    assert one(objects, "Service", service)["spec"]["clusterIP"] == "None"


def test_pickers_find_each_other_by_the_service_that_gives_them_their_names() -> None:
    objects = render(SETS["fleet"])
    pickers = one(objects, "StatefulSet", f"{NAME}-picker")
    assert pickers["spec"]["replicas"] == 2
    (container,) = pickers["spec"]["template"]["spec"]["containers"]
    (peers,) = [word.removeprefix("--peers=") for word in container["args"] if word.startswith("--peers=")]
    assert pickers["spec"]["serviceName"] == peers
    service = one(objects, "Service", peers)
    assert service["spec"]["clusterIP"] == "None"
    assert [port["name"] for port in service["spec"]["ports"]] == ["grpc"], "the port that pickers look for"


def test_servers_have_no_rights_and_no_token() -> None:
    alone = render({})
    assert not any(entry["kind"] in ("Role", "RoleBinding") for entry in alone)
    assert "projected" not in str(workloads(alone)["server"])
    pod = workloads(render(SETS["fleet"]))["server"]
    (agent,) = pod["initContainers"]
    (server,) = pod["containers"]
    assert agent["restartPolicy"] == "Always", "it runs next to the server"
    assert "token" in [mount["name"] for mount in agent["volumeMounts"]]
    assert "token" not in [mount["name"] for mount in server["volumeMounts"]]


def plan(node: str, **status: object) -> Object:
    written = {"status": status} if status else {"spec": {"epoch": 1, "models": []}}
    kind = {"apiVersion": "tessera.dev/v1alpha1", "kind": "NodePlan"}
    return {**kind, "metadata": {"name": node, "namespace": NAMESPACE}, **written}


def test_an_agent_writes_only_the_plan_of_its_node(api_server: ApiServer) -> None:
    objects = render(SETS["fleet"])
    policies = [entry for entry in objects if entry["kind"].startswith("ValidatingAdmissionPolicy")]
    assert len(policies) == 2
    api_server.apply(policies)
    api_server.apply([plan("node-a"), plan("node-b")])
    agent = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}-server"
    on_a = [agent, "--as-user-extra=authentication.kubernetes.io/node-name=node-a", "--subresource=status"]
    until(lambda: api_server.refusal([plan("node-b", observedEpoch=1)], *on_a), "the policy is in force")
    refused = api_server.refusal([plan("node-b", observedEpoch=1)], *on_a)
    assert "an agent may write only the status of the NodePlan of its own node: expected node-a, got node-b" in refused
    # Its own plan, the plans of others without a node in the token, and other callers.
    api_server.apply([plan("node-a", observedEpoch=1)], *on_a)
    nameless = api_server.refusal([plan("node-a", observedEpoch=2)], agent, "--subresource=status")
    assert "expected a token that names a node, got node-a" in nameless
    leader = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}-leader"
    api_server.apply([plan("node-b")], leader)


@pytest.mark.parametrize("part", ["leader", "picker", "agent"])
def test_the_program_of_the_fleet_knows_the_arguments(part: str) -> None:
    program = Path(os.environ["TESSERA_BIN"]).with_name("tessera-fleet")
    if not program.is_file():
        pytest.skip(f"no program at {program.name} next to the server")
    found = workloads(render(SETS["fleet"]))
    container = found["server"]["initContainers"][0] if part == "agent" else found[part]["containers"][0]
    arguments = [word.replace("$(NAMESPACE)", "n").replace("$(POD)", "p").replace("$(NODE)", "a") for word in container["args"]]
    done = subprocess.run([program, *arguments, "--help"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr
