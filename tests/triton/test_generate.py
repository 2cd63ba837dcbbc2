"""The generate extension: answers of both servers to the same requests."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import pytest

from fixtures.wait import until
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


def test_an_event_counts_against_the_budget_until_it_is_read(servers: Pair) -> None:
    server = servers.tessera

    def held() -> float:
        return server.metric("tessera_body_bytes")

    body = json.dumps({"INPUT0": [1.5] * 1_000_000}).encode()
    head = f"POST /v2/models/plain/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    host, port = server.http_address.split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect((host, int(port)))
        client.sendall(head.encode() + body)
        # Four characters for each element. The request, five for each, is given back.
        until(lambda: 4_000_000 <= held() < 4_100_000, lambda: f"the event is held, now {held()}", 30.0)
        read = 0
        while read < 4_000_000:
            read += len(client.recv(1 << 20))
        until(lambda: held() == 0, lambda: f"the event is given back, now {held()}", 30.0)
