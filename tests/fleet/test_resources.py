"""The API server refuses objects that cannot be meant, and says what would be right."""

from __future__ import annotations

from fixtures.kubernetes import GROUP, ApiServer, model, plan, pool

DIGEST = "sha256:" + "0" * 64
URL = "expected a URL that starts with s3://"

# Plural, object, and words of the refusal.
WRONG = [
    ("models", model("m" * 64), "metadata.name: expected at most 63 characters"),
    ("models", model("m", objective={"slo": "fast"}), "objective.slo: expected a duration above 0 and at most 60m"),
    ("models", model("m", objective={"slo": "0ms"}), "objective.slo: expected a duration above 0 and at most 60m"),
    ("models", model("m", objective={"slo": "61m"}), "objective.slo: expected a duration above 0 and at most 60m"),
    ("models", model("m", source={"uri": "models/m"}), f"source.uri: {URL}"),
    ("models", model("m", source={"uri": "s3://b/m", "digest": "sha256:1"}), "source.digest: expected sha256: and 64"),
    ("models", model("m", minReplicas=3, maxReplicas=2), "minReplicas: expected at most maxReplicas"),
    ("models", model("m", minReplicas=-1), "spec.minReplicas"),
    ("models", model("m", maxReplicas=0), "spec.maxReplicas"),
    ("models", model("m", **{"class": 0}), "spec.class"),
    ("models", model("m", tenant="a b"), "spec.tenant"),
    ("models", model("m", rate=-1.0), "spec.rate"),
    ("models", model("m", memoryBytes=-1), "spec.memoryBytes"),
    ("models", model("m", profile="fast"), "spec.profile"),
    ("models", model("m", profile={"fixed": "fast", "perRow": "1ms"}), "profile.fixed: expected a duration of at most 60m"),
    ("models", model("m", profile={"fixed": "1ms", "perRow": "2h"}), "profile.perRow: expected a duration of at most 60m"),
    ("models", model("m", profile={"fixed": "0s", "perRow": "0s"}), "profile: expected fixed or perRow above 0"),
    ("models", model("m", profile={"fixed": "1ms", "perRow": "1ms", "maxBatch": 0}), "maxBatch"),
    ("models", model("m", placement={"notWith": ["a", "a"]}), "Duplicate value"),
    (
        "models",
        model("m", placement={"nodeSelector": {f"l{i}": "" for i in range(17)}}),
        "placement.nodeSelector: expected at most 16 labels",
    ),
    ("servingpools", pool(headroom=1.0), "spec.headroom"),
    ("servingpools", pool(movesPerMinute=0), "spec.movesPerMinute"),
    ("servingpools", pool(replicas=-1), "spec.replicas"),
    ("servingpools", pool(policy="guess"), "spec.policy"),
    (
        "servingpools",
        pool(nodeSelector={f"l{i}": "" for i in range(17)}),
        "nodeSelector: expected at most 16 labels",
    ),
    ("nodeplans", plan("n", -1, []), "spec.epoch"),
    ("nodeplans", plan("n", 1, ["m", "m"]), "spec.models[1]: Duplicate value"),
    ("nodeplans", plan("n", 1, ["../m"]), "spec.models[0].model"),
    (
        "nodeplans",
        plan("n", 1, [], models=[{"model": "m", "rate": 1.0, "role": "spare"}]),
        "rate: expected 0 for a spare",
    ),
    ("nodeplans", plan("n", 1, [], models=[{"model": "m", "rate": 1.0, "role": "main"}]), "spec.models[0].role"),
    ("nodeplans", plan("n", 1, [], gpulets=[{"device": "gpu-0"}]), "spec.gpulets[0].units"),
]


def test_objects_that_cannot_be_meant_are_refused_with_the_field(api: ApiServer) -> None:
    for plural, thing, words in WRONG:
        status, answer = api.call("POST", f"{GROUP}/{plural}", thing)
        assert status == 422 and words in answer["message"], f"{words}: {status} {answer}"


def test_a_minimal_object_gets_defaults_and_can_be_scaled(api: ApiServer) -> None:
    status, answer = api.apply(f"{GROUP}/models", model("m", source={"uri": "s3://b/m", "digest": DIGEST}))
    assert status == 201, answer
    spec = answer["spec"]
    assert (spec["class"], spec["tenant"], spec["minReplicas"]) == (1, "default", 1)
    status, answer = api.apply(f"{GROUP}/servingpools", pool())
    assert status == 201, answer
    assert (answer["spec"]["policy"], answer["spec"]["headroom"], answer["spec"]["movesPerMinute"]) == ("pack", 0.2, 6)
    scale = {"spec": {"replicas": 5}}
    status, answer = api.call("PATCH", f"{GROUP}/servingpools/all/scale", scale, "application/merge-patch+json")
    assert status == 200, answer
    assert api.get(f"{GROUP}/servingpools/all")["spec"]["replicas"] == 5


def test_the_epoch_of_a_plan_never_falls(api: ApiServer) -> None:
    assert api.apply(f"{GROUP}/nodeplans", plan("n", 5, ["a"]))[0] == 201
    status, answer = api.apply(f"{GROUP}/nodeplans", plan("n", 4, ["b"]), manager="old-leader")
    assert status == 422 and "epoch: expected at least the epoch in force" in answer["message"], answer
    status, answer = api.call(
        "PATCH", f"{GROUP}/nodeplans/n", [{"op": "remove", "path": "/spec/epoch"}], "application/json-patch+json"
    )
    assert status == 422 and "epoch: expected at least" in answer["message"], answer
    assert api.apply(f"{GROUP}/nodeplans", plan("n", 5, ["b"]))[0] == 200, "the same leader may change its plan"
    assert api.apply(f"{GROUP}/nodeplans", plan("n", 6, ["b"]))[0] == 200
