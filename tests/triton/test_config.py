"""`GET /v2/models/NAME/config` and gRPC ModelConfig: Tessera answers as Triton does."""

from __future__ import annotations

import pytest
import tritonclient.grpc
import tritonclient.http
from google.protobuf import json_format

from triton import configs
from triton.conftest import Pair

# Where Tessera's configuration differs from Triton's: path -> reason. One that does not occur any more fails.
DIFFERENCES = {
    "parameters.tessera.engine": "says which engine runs the model",
    "parameters.tessera.policy": "says how batches are formed",
    "max_batch_size": "a batch size that the file leaves out is 64; Triton's default is 4",
    "dynamic_batching": "Triton's ONNX Runtime backend adds it with the batch size; the Python backend in its place cannot",
}
INFERRED = {"max_batch_size", "dynamic_batching"}
# Differences of single files.
NO_COUNT = {"instance_group[0].count": "a group without a count is one lane; Triton runs two on CPUs"}
SINGLE = {"default_count": NO_COUNT, "automatic": NO_COUNT}


def leaves(value: object, path: str = "") -> dict[str, object]:
    """Paths of all values. Empty messages and lists are values."""
    if isinstance(value, dict) and value:
        parts = [leaves(inner, f"{path}.{key}" if path else key) for key, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [leaves(inner, f"{path}[{index}]") for index, inner in enumerate(value)]
    else:
        return {path: value}
    return {key: inner for part in parts for key, inner in part.items()}


def differences(ours: dict, theirs: dict) -> set[str]:
    """Listed paths that differ, and others as they are."""
    found = set()
    left, right = leaves(ours), leaves(theirs)
    for path in left.keys() | right.keys():
        if path in left and path in right and left[path] == right[path]:
            continue
        if path == "parameters" and right[path] == {}:
            continue  # empty there, and filled here by the listed ones
        listed = next((known for known in DIFFERENCES if path == known or path.startswith(f"{known}.")), None)
        if listed is None and any(path in single for single in SINGLE.values()):
            listed = path
        listed = listed or ("dynamic_batching" if path.startswith("dynamic_batching.") else None)
        found.add(listed or f"{path}: {left.get(path, 'absent')!r} instead of {right.get(path, 'absent')!r}")
    return found


def is_inferred(name: str) -> bool:
    return "max_batch_size" not in configs.CONFIGS[name]


@pytest.mark.parametrize("name", configs.CONFIGS)
def test_the_configuration_is_tritons(servers: Pair, name: str) -> None:
    with (
        tritonclient.http.InferenceServerClient(servers.tessera.http_address) as ours,
        tritonclient.http.InferenceServerClient(servers.triton.http_address) as theirs,
    ):
        found = differences(ours.get_model_config(name), theirs.get_model_config(name))
    allowed = set(DIFFERENCES) if is_inferred(name) else set(DIFFERENCES) - INFERRED
    assert found - set(SINGLE.get(name, {})) <= allowed
    assert set(SINGLE.get(name, {})) <= found
    assert {"parameters.tessera.engine", "parameters.tessera.policy"} <= found


@pytest.mark.parametrize("name", configs.CONFIGS)
def test_http_and_grpc_say_the_same(servers: Pair, name: str) -> None:
    with (
        tritonclient.http.InferenceServerClient(servers.tessera.http_address) as http,
        tritonclient.grpc.InferenceServerClient(servers.tessera.grpc_address) as grpc,
    ):
        message = grpc.get_model_config(name).config
        known = {field.name for field in message.DESCRIPTOR.fields}
        over_http = http.get_model_config(name)
        parsed = json_format.ParseDict({k: v for k, v in over_http.items() if k in known}, type(message)())
    assert parsed == message


def test_there_are_no_stale_differences(servers: Pair) -> None:
    found = set()
    with (
        tritonclient.http.InferenceServerClient(servers.tessera.http_address) as ours,
        tritonclient.http.InferenceServerClient(servers.triton.http_address) as theirs,
    ):
        for name in configs.CONFIGS:
            found |= differences(ours.get_model_config(name), theirs.get_model_config(name))
    assert found == set(DIFFERENCES).union(*SINGLE.values())
