"""Checks objects without a server: the schemas of Kubernetes, and for other projects the fields that our manifests use."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from programs import ROOT

Object = dict[str, Any]

VERSION = "1.37"
THIRD_PARTY = Path(__file__).parent / "third_party"
# What `tessera-fleet crds` writes.
OWN = ROOT / "deploy/crds"


def definitions() -> list[Object]:
    """Custom resource definitions: those of other projects, in excerpts, and our own."""
    files = sorted(THIRD_PARTY.glob("*.yaml"))
    own = sorted(OWN.glob("*.yaml"))
    return [definition for file in files + own for definition in yaml.safe_load_all(file.read_text()) if definition]


def _strict(schema: Object) -> Object:
    """The schema, which also refuses unknown fields, as the API server does with strict validation."""
    schema = copy.deepcopy(schema)
    pending = [schema]
    while pending:
        node = pending.pop()
        properties = node.get("properties", {})
        if properties and not node.get("x-kubernetes-preserve-unknown-fields"):
            node["additionalProperties"] = False
        for child in [*properties.values(), node.get("items"), node.get("additionalProperties")]:
            if isinstance(child, dict):
                pending.append(child)
    return schema


def _custom() -> dict[tuple[str, str], Object]:
    found = {}
    for definition in definitions():
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"].update({"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}})
            found[(f"{spec['group']}/{version['name']}", spec["names"]["kind"])] = schema
    return found


CUSTOM = _custom()


def check(checked: Object) -> None:
    """Fails with the path of the field if the object does not fit its schema."""
    schema = CUSTOM.get((checked["apiVersion"], checked["kind"]))
    if schema is None:
        try:
            kubernetes_validate.validate(checked, VERSION, strict=True)
        except jsonschema.ValidationError as refused:
            raise AssertionError(f"{checked['kind']}/{checked['metadata']['name']}: {refused}") from refused
        return
    mistakes = [f"{mistake.json_path}: {mistake.message}" for mistake in jsonschema.Draft7Validator(schema).iter_errors(checked)]
    assert not mistakes, f"{checked['kind']}/{checked['metadata']['name']}: {mistakes}"
