"""The generate extension: answers of both servers to the same requests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from triton.conftest import Pair

# Path, body.
SAME = [
    ("plain/generate", {"INPUT0": [1.0, 2.5]}),
    ("plain/generate", {"INPUT0": 1.5}),
    ("plain/versions/1/generate", {"INPUT0": [1.0], "id": "7"}),
    ("plain/generate", {"INPUT0": [1.0], "parameters": {"timeout": 10000000}, "temperature": 3, "word": "x"}),
    ("words/generate", {"INPUT0": "hello"}),
    ("words/generate", {"INPUT0": ["hello", "w\u00f6rld"]}),
    ("pairs/generate", {"INPUT0": list(range(16)), "INPUT1": [1] * 16}),
    ("pairs/generate", {"INPUT0": list(range(32)), "INPUT1": [1] * 32}),
    ("plain/generate_stream", {"INPUT0": [1.0, 2.0]}),
    ("words/generate_stream", {"INPUT0": "hello", "stream": True}),
]
# Path, body, words of our error.
REFUSED = [
    ("plain/generate", {}, "INPUT0"),
    ("plain/generate", {"INPUT0": [{"a": 1}]}, "list of values"),
    ("pairs/generate", {"INPUT0": [1, 2, 3], "INPUT1": [1] * 16}, "3 elements"),
    ("plain/generate", {"INPUT0": ["a"]}, "INPUT0"),
    ("absent/generate", {"INPUT0": [1.0]}, "absent"),
    ("absent/generate_stream", {"INPUT0": [1.0]}, "absent"),
]


def post(base_url: str, path: str, body: object) -> tuple[int, str, bytes]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{base_url}/v2/models/{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read()


def parsed(answer: tuple[int, str, bytes]) -> tuple[int, str, list]:
    status, kind, body = answer
    if kind.startswith("text/event-stream"):
        events = body.decode().removesuffix("\n\n").split("\n\n")
        return status, kind, [json.loads(event.removeprefix("data: ")) for event in events]
    return status, kind, [json.loads(body)]


@pytest.mark.parametrize(("path", "body"), SAME)
def test_answers_are_tritons(servers: Pair, path: str, body: dict) -> None:
    ours = parsed(post(servers.tessera.base_url, path, body))
    assert ours == parsed(post(servers.triton.base_url, path, body))
    assert ours[0] == 200


@pytest.mark.parametrize(("path", "body", "words"), REFUSED)
def test_mistakes_are_refused_by_both(servers: Pair, path: str, body: dict, words: str) -> None:
    status, _, (answer,) = parsed(post(servers.tessera.base_url, path, body))
    assert 400 <= status < 500
    assert words in answer["error"]
    assert post(servers.triton.base_url, path, body)[0] >= 400
