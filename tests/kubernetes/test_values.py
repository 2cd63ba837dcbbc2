"""Values: mistakes are refused with a message that names the key, and the schema knows exactly the keys of values.yaml."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from chart import DIGEST, helm, render, server_of, workloads
from programs import CHART

Object = dict[str, Any]

# Values, and words that the message must contain.
MISTAKES: list[tuple[Object, list[str]]] = [
    ({"servr": {}}, ["servr", "not allowed"]),
    ({"image": {"digst": DIGEST}}, ["/image", "digst", "not allowed"]),
    ({"image": {"digest": "sha256:123"}}, ["/image/digest", "sha256:123", "[0-9a-f]{64}"]),
    ({"image": {"digest": DIGEST.removeprefix("sha256:")}}, ["/image/digest"]),
    ({"image": {"repository": "Tessera"}}, ["/image/repository", "Tessera"]),
    ({"fleet": {"image": {"digest": "latest"}}}, ["/fleet/image/digest", "latest"]),
    ({"server": {"kind": "StatefulSet"}}, ["/server/kind", "Deployment", "DaemonSet"]),
    ({"server": {"replicas": "two"}}, ["/server/replicas", "string"]),
    ({"server": {"replicas": -1}}, ["/server/replicas", "minimum"]),
    ({"server": {"config": {"server": {}}}}, ["/server/config", "string"]),
    ({"server": {"config": "[server]\ngrace = '3s'"}}, ["server.config", "`grace`", "server.graceSeconds"]),
    ({"server": {"config": "server.lame_duck = '3s'"}}, ["server.config", "`lame_duck`", "server.lameDuckSeconds"]),
    ({"server": {"config": "[server]\n  http = '0.0.0.0:80'"}}, ["server.config", "address", "remove"]),
    ({"server": {"config": "[server]\nwatch_config = true"}}, ["server.config", "`watch_config`", "server.configChange"]),
    ({"server": {"config": "[repository]\npath = '/m'", "repository": {"claim": "m"}}}, ["server.config", "`path`"]),
    ({"server": {"graceSeconds": "20s"}}, ["/server/graceSeconds", "string", "integer"]),
    ({"server": {"repository": {"url": "ftp://models"}}}, ["/server/repository/url", "s3|gs|az|https"]),
    ({"server": {"repository": {"url": "s3://m", "claim": "m"}}}, ["server.repository", "`url` or `claim`", "both"]),
    ({"server": {"repository": {"fromSources": True}}}, ["server.repository.fromSources", "fleet.enabled"]),
    (
        {"server": {"repository": {"fromSources": True, "claim": "m"}}, "fleet": {"enabled": True}},
        ["server.repository.fromSources", "`claim`"],
    ),
    ({"server": {"repository": {"subPath": "a"}}}, ["server.repository.subPath", "server.repository.claim"]),
    ({"server": {"gpus": {"count": 1.5}}}, ["/server/gpus/count", "integer"]),
    (
        {"server": {"gpus": {"count": 1}, "deviceClaim": {"enabled": True}}},
        ["server.gpus.count", "server.deviceClaim.enabled", "both"],
    ),
    ({"server": {"resources": {"limits": {"memory": "4 pigs"}}}}, ["/server/resources/limits/memory", "4 pigs"]),
    ({"server": {"resources": {"limit": {}}}}, ["/server/resources", "'limit' not allowed"]),
    ({"server": {"env": [{"name": "A", "valu": "b"}]}}, ["/server/env/0", "valu"]),
    ({"server": {"env": [{"name": "TESSERA_SERVER_HTTP", "value": ":80"}]}}, ["server.env", "`TESSERA_SERVER_HTTP`"]),
    ({"server": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}}, ["server.env", "`A`"]),
    ({"server": {"kind": "DaemonSet", "replicas": 3}}, ["server.replicas", "DaemonSet", "server.nodeSelector"]),
    ({"server": {"cache": {"volume": {"emptyDir": {}}}}}, ["server.cache.volume", "server.repository.url"]),
    ({"networkPolicy": {"clients": [{"podSelector": {}}]}}, ["networkPolicy", "networkPolicy.enabled"]),
    ({"server": {"maxUnavailable": "one"}}, ["/server/maxUnavailable", "one"]),
    ({"fleet": {"enabled": "yes"}}, ["/fleet/enabled", "boolean"]),
    ({"fleet": {"leader": {"replicas": 0}}}, ["/fleet/leader/replicas", "minimum"]),
    ({"fleet": {"enabled": True}, "server": {"keysSecret": "k"}}, ["fleet.agent.keySecret", "`operate`"]),
    (
        {"fleet": {"enabled": True}, "monitoring": {"monitor": "ServiceMonitor"}},
        ["monitoring.monitor", "`PodMonitor`", "`ServiceMonitor`"],
    ),
    ({"monitoring": {"dashboard": {"datasource": "a b"}}}, ["/monitoring/dashboard/datasource", "a b"]),
    ({"networkPolicy": {"clients": [{"cidr": "10.0.0.0/8"}]}}, ["/networkPolicy/clients/0", "cidr"]),
]


@pytest.mark.parametrize(("values", "words"), MISTAKES, ids=[json.dumps(values)[:60] for values, _ in MISTAKES])
def test_a_mistake_is_refused_with_its_key(values: Object, words: list[str]) -> None:
    done = helm("template", values)
    assert done.returncode != 0, done.stdout
    missing = [word for word in words if word not in done.stderr]
    assert not missing, f"{missing} not in: {done.stderr}"


def test_the_schema_has_the_keys_of_the_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(path: str, values: Object, described: Object) -> None:
        described = schema["$defs"][described["$ref"].rpartition("/")[2]] if "$ref" in described else described
        if "properties" not in described:
            # Objects of users and of Kubernetes, whose keys are theirs.
            return
        assert described["additionalProperties"] is False, path
        # `global` is for charts that contain this one.
        assert set(values) == set(described["properties"]) - {"global"}, path
        for key, value in values.items():
            if isinstance(value, dict):
                compare(f"{path}.{key}", value, described["properties"][key])

    compare("", yaml.safe_load((CHART / "values.yaml").read_text()), schema)


def test_a_digest_wins_over_the_tag() -> None:
    assert server_of(render({}))["image"].startswith("tessera:")
    assert server_of(render({"image": {"tag": "x", "digest": DIGEST}}))["image"] == f"tessera@{DIGEST}"
    fleet = workloads(render({"image": {"digest": DIGEST}, "fleet": {"enabled": True, "image": {"tag": "next"}}}))
    assert fleet["picker"]["containers"][0]["image"] == "tessera:next"
    fleet = workloads(render({"image": {"digest": DIGEST}, "fleet": {"enabled": True}}))
    assert fleet["leader"]["containers"][0]["image"] == f"tessera@{DIGEST}"
