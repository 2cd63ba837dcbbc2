"""A response, reduced to what clients can distinguish, and two ways to check it."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import dataclass, field

# Names and versions of the servers always differ.
ALWAYS_IGNORED = {"platform"}


class CannotRun(Exception):
    """The reference server cannot run on this machine; the text says why."""


@dataclass
class Answer:
    """A status (HTTP number or gRPC name), the headers that matter, the JSON part and the binary part."""

    status: int | str
    headers: dict[str, str] = field(default_factory=dict)
    body: object = None
    tail: bytes = b""

    @classmethod
    def from_http(cls, status: int, headers: dict[str, str], content: bytes) -> Answer:
        found = {key.lower(): value for key, value in headers.items()}
        encoding = found.get("content-encoding", "")
        if encoding == "gzip":
            content = gzip.decompress(content)
        elif encoding == "deflate":
            content = zlib.decompress(content)
        kept = {key: found[key] for key in ("content-type", "content-encoding") if key in found}
        length = found.get("inference-header-content-length")
        head, tail = (content[: int(length)], content[int(length) :]) if length else (content, b"")
        if length:
            kept["inference-header-content-length"] = "present"
        try:
            body = json.loads(head) if head else None
        except ValueError:
            body = head.decode(errors="replace")
        return cls(status, kept, body, tail)

    def __str__(self) -> str:
        tail = f" + {self.tail.hex()}" if self.tail else ""
        return f"{self.status} {self.headers} {json.dumps(self.body)[:1000]}{tail[:200]}"


def is_error(body: object) -> bool:
    return isinstance(body, dict) and set(body) == {"error"} and isinstance(body["error"], str)


def same(left: object, right: object, ignored: set[str]) -> bool:
    """Equal, but for ignored keys anywhere and the last digits of floats."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = (set(left) | set(right)) - ignored
        return all(key in left and key in right and same(left[key], right[key], ignored) for key in keys)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b, ignored) for a, b in zip(left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return (
            left == right
            or (math.isnan(left) and math.isnan(right))
            or math.isclose(left, right, rel_tol=1e-5, abs_tol=1e-6)
        )
    return left == right


def differences(ours: Answer, oracle: Answer, ignored: set[str]) -> list[str]:
    """What a client could tell apart. The wording of an error is each server's own."""
    found = []
    if ours.status != oracle.status:
        found.append(f"status {ours.status} against {oracle.status}")
    if is_error(ours.body) and is_error(oracle.body):
        return found
    if ours.headers != oracle.headers and "headers" not in ignored:
        found.append(f"headers {ours.headers} against {oracle.headers}")
    if not same(ours.body, oracle.body, ignored | ALWAYS_IGNORED):
        found.append("body")
    if ours.tail != oracle.tail:
        found.append("binary tail")
    return found


def unmet(expected: dict, found: Answer) -> list[str]:
    """The parts of a scenario's `expect` that the answer does not have."""
    missing = []
    if str(found.status) != str(expected["status"]):
        missing.append(f"status {expected['status']}, got {found.status}")
    for key, value in expected.get("headers", {}).items():
        if found.headers.get(key) != value:
            missing.append(f"header {key}: {value}, got {found.headers.get(key)}")
    if "error" in expected:
        text = found.body.get("error", "") if isinstance(found.body, dict) else ""
        if expected["error"] not in text:
            missing.append(f"an error naming {expected['error']!r}, got {text!r}")
    if "body" in expected and not contains(found.body, expected["body"]):
        missing.append(f"a body with {json.dumps(expected['body'])}")
    if "tail" in expected and found.tail.hex() != expected["tail"]:
        missing.append(f"binary tail {expected['tail']}, got {found.tail.hex()}")
    return missing


def contains(found: object, wanted: object) -> bool:
    """`found` has everything in `wanted`; objects may have more keys, lists may not have more items."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and contains(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(contains, found, wanted))
    return same(found, wanted, set())
