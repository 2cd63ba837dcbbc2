"""Renders the chart with sets of values that users have."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import yaml
from programs import CHART, attempt, program

Object = dict[str, Any]

NAME = NAMESPACE = "tessera"
DIGEST = "sha256:" + "0123456789abcdef" * 4
CONFIG = '[models.digits]\nslo = "50ms"\n\n[tenants.search]\nweight = 3\n'
PEER = {"namespaceSelector": {"matchLabels": {"team": "search"}}}

SETS: dict[str, Object] = {
    "default": {},
    "gpus": {"server": {"gpus": {"count": 4}, "replicas": 3, "repository": {"url": "s3://models/production"}}},
    "daemonset": {
        "server": {
            "kind": "DaemonSet",
            "deviceClaim": {"enabled": True},
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "repository": {"claim": "models", "subPath": "production"},
            "configChange": "watch",
            "config": CONFIG,
        },
        "monitoring": {"monitor": "ServiceMonitor"},
    },
    "fleet": {"fleet": {"enabled": True}, "server": {"replicas": None, "repository": {"url": "s3://models/production"}}},
    "sources": {
        "fleet": {"enabled": True, "agent": {"env": [{"name": "AWS_REGION", "value": "eu-central-1"}], "envFrom": [{"secretRef": {"name": "models"}}]}},
        "server": {"replicas": None, "repository": {"fromSources": True}},
    },
    "everything": {
        "fullnameOverride": "inference",
        "image": {"repository": "registry.example.com:5000/team/tessera", "digest": DIGEST},
        "imagePullSecrets": [{"name": "registry"}],
        "server": {
            "replicas": 2,
            "config": CONFIG,
            "graceSeconds": 120,
            "lameDuckSeconds": 15,
            "repository": {"url": "https://models.example.com/all"},
            "cache": {"volume": {"persistentVolumeClaim": {"claimName": "cache"}}},
            "deviceClaim": {"enabled": True, "count": 2},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]
                    }
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "noisy"}}}
                    ]
                },
            },
            "priorityClassName": "inference",
            "runtimeClassName": "nvidia",
            "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
            "envFrom": [{"secretRef": {"name": "models"}}],
            "podAnnotations": {"example.com/a": "b"},
            "podLabels": {"team": "search"},
            "tlsSecret": "tls",
            "keysSecret": "keys",
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/models"}},
            "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
            "maxUnavailable": "10%",
        },
        "fleet": {
            "enabled": True,
            "image": {"tag": "next"},
            "leader": {"replicas": 3, "extraArgs": ["--log-level=debug"]},
            "picker": {"replicas": 3},
            "agent": {"keySecret": "agent-key"},
        },
        "monitoring": {
            "monitor": "PodMonitor",
            "rules": True,
            "labels": {"release": "prometheus"},
            "endpoint": {"tlsConfig": {"insecureSkipVerify": True}},
            "dashboard": {"enabled": True, "datasource": "main"},
        },
        "networkPolicy": {"enabled": True, "clients": [PEER], "monitoring": [PEER]},
    },
    "nothing": {
        "server": {
            "onePodPerNode": False,
            "spreadOver": "",
            "maxUnavailable": None,
            "resources": {"requests": None, "limits": None},
        }
    },
}


def helm(command: str, values: Object, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs `helm COMMAND` on the chart with these values, as release `tessera` in the namespace `tessera`."""
    release = [] if command == "lint" else [NAME]
    arguments = [command, *release, CHART, "--namespace", NAMESPACE, "--values", "-", *options]
    return attempt(program("helm"), *arguments, given=json.dumps(values))


def render(values: Object) -> list[Object]:
    """The objects of the chart with these values."""
    done = helm("template", values)
    assert done.returncode == 0, done.stderr
    return [rendered for rendered in yaml.safe_load_all(done.stdout) if rendered]


def one(objects: list[Object], kind: str, name: str) -> Object:
    """The object of that kind and name."""
    found = [entry for entry in objects if (entry["kind"], entry["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects {kind}/{name}: {[(o['kind'], o['metadata']['name']) for o in objects]}"
    return found[0]


def workloads(objects: list[Object]) -> dict[str, Object]:
    """The specification of the pods of each component."""
    found = [entry for entry in objects if entry["kind"] in ("Deployment", "DaemonSet", "StatefulSet")]
    return {
        entry["metadata"]["labels"]["app.kubernetes.io/component"]: entry["spec"]["template"]["spec"] for entry in found
    }


def server_of(objects: list[Object]) -> Object:
    """The container of the server."""
    (server,) = workloads(objects)["server"]["containers"]
    return server


def environment_of(container: Object) -> dict[str, str]:
    """Variables with literal values."""
    return {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
