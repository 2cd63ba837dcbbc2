"""The response cache: the same statistics and metrics as Triton's for the same requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonclient.http

from fixtures.metrics import series
from triton.conftest import Pair

# Rows of two, values in turn: 1 is new, then cached twice; 2 is new.
VALUES = [1.0, 1.0, 1.0, 2.0]


def ask(connection, model: str, value: float) -> np.ndarray:
    tensor = tritonclient.http.InferInput("INPUT0", [2, 4], "FP32")
    tensor.set_data_from_numpy(np.full((2, 4), value, np.float32))
    return connection.infer(model, [tensor]).as_numpy("OUTPUT0")


@pytest.fixture(scope="module")
def asked(servers: Pair) -> Pair:
    """Both servers after the same requests."""
    for address in (servers.tessera.http_address, servers.triton.http_address):
        with tritonclient.http.InferenceServerClient(address) as connection:
            for model in ("cached", "plain"):
                for value in VALUES:
                    assert (ask(connection, model, value) == value).all()
    return servers


def counts(address: str, model: str) -> dict:
    with tritonclient.http.InferenceServerClient(address) as connection:
        (stats,) = connection.get_inference_statistics(model)["model_stats"]
    durations = stats["inference_stats"]
    return {
        "inference_count": stats["inference_count"],
        "execution_count": stats["execution_count"],
        **{name: value["count"] for name, value in durations.items()},
    }


@pytest.mark.parametrize("model", ["cached", "plain"])
def test_statistics_count_hits_and_misses_as_triton(asked: Pair, model: str) -> None:
    ours, theirs = counts(asked.tessera.http_address, model), counts(asked.triton.http_address, model)
    assert ours == theirs
    assert (ours["cache_hit"], ours["cache_miss"]) == ((2, 2) if model == "cached" else (0, 0))
    assert ours["execution_count"] == (2 if model == "cached" else 4)


def test_hits_and_misses_take_time(asked: Pair) -> None:
    with tritonclient.http.InferenceServerClient(asked.tessera.http_address) as connection:
        (stats,) = connection.get_inference_statistics("cached")["model_stats"]
    assert stats["inference_stats"]["cache_hit"]["ns"] > 0
    assert stats["inference_stats"]["cache_miss"]["ns"] > stats["inference_stats"]["cache_hit"]["ns"] / 10


def test_metrics_have_tritons_names_labels_and_counts(asked: Pair) -> None:
    """Every series of Triton's about a model is there with the same labels; counts are equal."""

    def of_models(text: dict[tuple, float]) -> dict[tuple, float]:
        return {
            (name, labels): value
            for (name, labels), value in text.items()
            if dict(labels).get("model") in ("cached", "plain")
        }

    ours = of_models(series(asked.tessera.metrics_url))
    theirs = of_models(series(asked.triton.metrics_url))
    assert {key for key in ours if key[0].startswith("nv_")} == set(theirs)
    assert len(theirs) >= 30
    for key, value in theirs.items():
        if "duration" not in key[0]:
            assert ours[key] == value, key
    tagged = (("_team", "blue"), ("model", "cached"), ("version", "1"))
    assert ours["tessera_cache_hits_total", tagged] == 2
    assert ours["tessera_cache_misses_total", tagged] == 2


def test_machine_metrics_are_there(asked: Pair) -> None:
    ours = series(asked.tessera.metrics_url)
    (total,) = (line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert ours["nv_cpu_memory_total_bytes", ()] == int(total) * 1024
    assert 0 < ours["nv_cpu_memory_used_bytes", ()] < ours["nv_cpu_memory_total_bytes", ()]
