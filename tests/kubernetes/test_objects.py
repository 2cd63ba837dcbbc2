"""Every object that the chart renders, against the schemas of Kubernetes and against a real API server."""

from __future__ import annotations

import copy
import uuid

import pytest
from api_server import ApiServer
from chart import NAMESPACE, SETS, helm, one, render
from schemas import check

NAMES = sorted(SETS)


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing(name: str) -> None:
    done = helm("lint", SETS[name], "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_objects_fit_the_schemas_of_kubernetes(name: str) -> None:
    objects = render(SETS[name])
    assert len(objects) >= 5
    for rendered in objects:
        check(rendered)
    identities = [(rendered["kind"], rendered["metadata"]["name"]) for rendered in objects]
    assert len(identities) == len(set(identities)), identities


@pytest.mark.parametrize("name", NAMES)
def test_an_api_server_takes_the_objects(name: str, api_server: ApiServer) -> None:
    # A namespace for each set, as for releases of different teams.
    namespace = f"{NAMESPACE}-{uuid.uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    objects = render(SETS[name])
    for rendered in objects:
        if "namespace" in rendered["metadata"]:
            rendered["metadata"]["namespace"] = namespace
    api_server.apply(objects)
    # An upgrade to the same values changes nothing.
    api_server.apply(objects)


def test_both_checks_find_a_misspelt_field(api_server: ApiServer) -> None:
    objects = render(SETS["everything"])
    for kind, name, path in [
        ("Deployment", "inference", ["spec", "template", "spec", "terminationGracePeriodSecond"]),
        ("PodDisruptionBudget", "inference", ["spec", "maxUnavailabel"]),
        ("PodMonitor", "inference", ["spec", "podMetricsEndpoint"]),
    ]:
        wrong = copy.deepcopy(one(objects, kind, name))
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = 1
        with pytest.raises(AssertionError, match=path[-1]):
            check(wrong)
        assert path[-1] in api_server.refusal([wrong], "--dry-run=server")
