"""Log settings: both servers change them alike, and Tessera's log follows."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
import tritonclient.grpc
import tritonclient.http

from triton.conftest import Pair

CHANGES = [{"log_info": False}, {"log_verbose_level": 1}, {"log_warning": False, "log_verbose_level": 0}, {}]
BACK = {"log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0}


def post(base_url: str, path: str, body: dict) -> tuple[int, dict]:
    request = urllib.request.Request(f"{base_url}{path}", data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_settings_change_as_tritons(servers: Pair) -> None:
    with (
        tritonclient.http.InferenceServerClient(servers.tessera.http_address) as ours,
        tritonclient.http.InferenceServerClient(servers.triton.http_address) as theirs,
    ):
        for change in [*CHANGES, BACK]:
            assert ours.update_log_settings(change) == theirs.update_log_settings(change)
            assert ours.get_log_settings() == theirs.get_log_settings()


def test_grpc_changes_the_same_settings(servers: Pair) -> None:
    with tritonclient.grpc.InferenceServerClient(servers.tessera.grpc_address) as connection:
        changed = connection.update_log_settings({"log_info": False}, as_json=True)
        assert changed["settings"]["log_info"]["bool_param"] is False
        assert connection.update_log_settings(BACK, as_json=True)["settings"]["log_info"]["bool_param"] is True


def test_the_log_follows(servers: Pair) -> None:
    """A refused request is logged at level debug."""

    def refusals() -> int:
        return len(servers.tessera.logged("request refused"))

    def refuse() -> None:
        assert post(servers.tessera.base_url, "/v2/models/absent/infer", {"inputs": []})[0] == 404

    before = refusals()
    refuse()
    assert refusals() == before
    post(servers.tessera.base_url, "/v2/logging", {"log_verbose_level": 1})
    refuse()
    assert refusals() == before + 1
    post(servers.tessera.base_url, "/v2/logging", BACK)
    refuse()
    assert refusals() == before + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_file": "/tmp/log"}, "log_file: cannot be changed"),
        ({"log_format": "ISO8601"}, "--log-format"),
        ({"log_info": 3}, "log_info: expected true or false"),
        ({"log_info": False, "log_verbose_level": "x"}, "log_verbose_level: expected"),
        ({"level": 3}, "unknown log setting"),
    ],
)
def test_a_wrong_change_changes_nothing(servers: Pair, change: dict, words: str) -> None:
    status, answer = post(servers.tessera.base_url, "/v2/logging", change)
    assert status == 400
    assert words in answer["error"]
    with tritonclient.http.InferenceServerClient(servers.tessera.http_address) as connection:
        assert connection.get_log_settings()["log_info"] is True
