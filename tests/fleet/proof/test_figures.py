"""The time to recover, from requests that are typed in."""

from __future__ import annotations

from fleet.proof.load import Request, recovery
from fleet.proof.models import microseconds, read


def request(due: float, outcome: str = "good") -> Request:
    return Request("m", due, due, due + 0.01, outcome, "")


def test_recovery_ends_with_the_first_whole_second_of_answers_in_time() -> None:
    steady = [request(at / 10) for at in range(100)]
    assert recovery(steady, 2.0) == 0.0
    assert recovery([*steady, request(2.05, "lost"), request(2.9, "late")], 2.0) == 2.9 - 2.0
    # A second without a fault ends it, whatever comes later.
    assert recovery([*steady, request(2.5, "refused"), request(3.6, "late")], 2.0) == 0.5
    # A request that was inside when the fault came was due before it.
    assert recovery([request(1.95, "lost"), *steady], 2.0) == 0.0


def test_the_workload_has_a_model_with_one_copy_and_several_with_two() -> None:
    models = read()
    assert sorted(model.copies for model in models) == [1, 2, 2, 2, 2]
    assert all(model.slo_s > (model.fixed_us + model.row_us) / 1e6 for model in models)
    assert microseconds("500us") == 500 and microseconds("2s") == 2_000_000
