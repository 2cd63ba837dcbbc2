"""The table: what is sent, the status it must get, and the word its error must contain.

Inspired by the list in Triton's qa/L0_http, and grown by whatever its front end answers 500 to.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

BODY_LIMIT = 64 * 2**20
INFER = "/v2/models/identity_fp32/infer"


@dataclass(frozen=True)
class Case:
    """Bytes for one connection. `names` must occur in the error. The body of a case with `inflates` decompresses to more
    than the limit. After a case with `half_close`, the client closes its half of the connection and waits."""

    name: str
    payload: bytes
    statuses: tuple[int, ...] = (400,)
    names: str = ""
    inflates: bool = False
    half_close: bool = False


def http(path: str, body: bytes = b"", method: str = "POST", length: int | str | None = None, **headers: str) -> bytes:
    """One request as bytes, with nothing checked or put right."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def tensor(**changes: object) -> dict[str, object]:
    """A good input with some keys changed; a value of None takes the key out."""
    good = {"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | changes
    return {key: value for key, value in good.items() if value is not None}


def post(*inputs: object, path: str = INFER, **keys: object) -> bytes:
    return http(path, json.dumps({"inputs": list(inputs), **keys}).encode())


def binary(head: object, tail: bytes, length: object = None, path: str = INFER, **headers: str) -> bytes:
    encoded = json.dumps(head).encode()
    stated = str(len(encoded) if length is None else length)
    return http(path, encoded + tail, Inference_Header_Content_Length=stated, **headers)


def sized(size: object, shape: list[int] | None = None, datatype: str = "FP32") -> dict[str, object]:
    return {
        "inputs": [tensor(shape=shape or [1, 2], datatype=datatype, data=None, parameters={"binary_data_size": size})]
    }


def broken_json() -> Iterator[Case]:
    texts = {
        "truncated": '{"inputs": [{"name": "INPUT0", "sha',
        "not-json": "inputs=1",
        "two-values": "{}{}",
        "bare-number": "3",
        "bare-null": "null",
        "array": "[]",
        "trailing-comma": '{"inputs": [],}',
        "single-quotes": "{'inputs': []}",
        "unfinished-escape": '{"inputs": "\\u12"}',
        "lone-surrogate": '{"id": "\\ud800", "inputs": []}',
        "control-character": '{"id": "a\nb", "inputs": []}',
        "nan": '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [NaN]}]}',
        "infinity": '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [-Infinity]}]}',
        "huge-exponent": '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1e999999999]}]}',
        "long-number": '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": ['
        + "9" * 100_000
        + "]}]}",
    }
    for name, text in texts.items():
        yield Case(f"json-{name}", http(INFER, text.encode()))
    yield Case("json-not-utf8", http(INFER, b'{"id": "\xff\xfe", "inputs": []}'))
    yield Case("json-empty", http(INFER))
    yield Case("json-nul-bytes", http(INFER, b"\0" * 4096))
    for depth in (65, 1000, 1_000_000):
        nest = b"[" * depth + b"]" * depth
        yield Case(
            f"json-depth-{depth}-data",
            http(
                INFER, b'{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": ' + nest + b"}]}"
            ),
        )
        yield Case(f"json-depth-{depth}-unknown-key", http(INFER, b'{"x": ' + nest + b', "inputs": []}'))
        yield Case(f"json-depth-{depth}-objects", http(INFER, b'{"a":' * depth + b"1" + b"}" * depth))
    yield Case("json-unclosed-depth", http(INFER, b"[" * 1_000_000))


def wrong_fields() -> Iterator[Case]:
    good = tensor()
    yield Case("inputs-missing", http(INFER, b"{}"), names="inputs")
    yield Case("inputs-object", http(INFER, b'{"inputs": {}}'), names="inputs")
    yield Case("inputs-null", http(INFER, b'{"inputs": null}'), names="inputs")
    yield Case("inputs-empty", post(), names="INPUT0")
    yield Case("input-number", post(3), names="inputs[0]")
    yield Case("input-twice", post(good, good), names="INPUT0")
    yield Case("input-unknown", post(good, tensor(name="OTHER")), names="OTHER")
    yield Case("inputs-too-many", post(*(tensor(name=f"X{i}") for i in range(257))), names="inputs")
    yield Case("outputs-too-many", post(good, outputs=[{"name": f"X{i}"} for i in range(257)]), names="outputs")
    for key, values in {
        "name": [None, 3, "", "x" * 100_000, ["INPUT0"]],
        "datatype": [None, "FLOAT", "fp32", 3, "", "x" * 100_000],
        "shape": [
            None,
            3,
            "1,2",
            [1.0, 2.0],
            [1, -2],
            [True, 2],
            [1, None],
            [2**64, 1],
            [2**32, 2**32],
            [2**62],
            [2**62, 1],
            [[1, 2]],
            [1] * 10_000,
        ],
        "data": [
            None,
            3,
            "1,2",
            {},
            [1],
            [1, 2, 3],
            [],
            ["1", "2"],
            [True, False],
            [None, 1],
            [[1], [2, 3]],
            [[1], 2],
            [[[1]], [2]],
            [[], [1, 2]],
            [1e39, 1],
            [{}, 1],
        ],
        "parameters": [3, [], "x", {"binary_data_size": 8}],
    }.items():
        for i, value in enumerate(values):
            names = "" if key == "parameters" or value == "" else key
            yield Case(f"{key}-{i}", post(tensor(**{key: value})), names=names)
    yield Case("batch-zero", post(tensor(shape=[0, 2], data=[])), names="INPUT0")
    yield Case("shape-beyond-any-body", post(tensor(shape=[2**62, 2])), (400, 413), names="inputs[0]")
    yield Case("rank", post(tensor(shape=[2])), names="INPUT0")
    yield Case(
        "fixed-shape",
        post(tensor(shape=[3, 2], data=[1, 2, 3, 4, 5, 6]), path="/v2/models/fixed/infer"),
        names="INPUT0",
    )
    yield Case("too-many-rows", post(tensor(shape=[65, 1], data=[1] * 65)), names="65")
    yield Case(
        "int8-range", post(tensor(datatype="INT8", data=[128, 0]), path="/v2/models/identity_int8/infer"), names="data"
    )
    yield Case(
        "uint64-range",
        post(tensor(datatype="UINT64", data=[2**64, 0]), path="/v2/models/identity_uint64/infer"),
        names="data",
    )
    yield Case(
        "bool-number", post(tensor(datatype="BOOL", data=[1, 0]), path="/v2/models/identity_bool/infer"), names="data"
    )
    for key, values in {
        "timeout": ["abc", -1, 1.5, 2**70, True, None, [], {}],
        "priority": ["high", -1, 1.5, 2**70, True, []],
        "binary_data_output": ["yes", 1, []],
    }.items():
        for i, value in enumerate(values):
            yield Case(f"{key}-{i}", post(good, parameters={key: value}), names=key)
    yield Case("timeout-nan", http(INFER, b'{"parameters": {"timeout": NaN}, "inputs": []}'))
    yield Case("id-number", post(good, id=3), names="id")
    yield Case("id-huge", post(good, id="x" * 1_000_000), names="id")
    yield Case("output-unknown", post(good, outputs=[{"name": "NOWHERE"}]), names="NOWHERE")
    yield Case("output-twice", post(good, outputs=[{"name": "OUTPUT0"}] * 2), names="OUTPUT0")
    yield Case("output-nameless", post(good, outputs=[{}]), names="name")
    for i, value in enumerate([-1, "3", 2**70, 1.5, []]):
        yield Case(
            f"classification-{i}",
            post(good, outputs=[{"name": "OUTPUT0", "parameters": {"classification": value}}]),
            names="classification",
        )
    for offset, size in ((0, 8), (2**63, 8), (-1, 8), (0, 2**63), (0, "8")):
        region = {"shared_memory_region": "absent", "shared_memory_offset": offset, "shared_memory_byte_size": size}
        yield Case(f"memory-{offset}-{size}", post(tensor(data=None, parameters=region)), (400, 404))


def wrong_binary() -> Iterator[Case]:
    two = struct.pack("<2f", 1, 2)
    for length in ("abc", "-1", "99999999", "10", "18446744073709551616", "1e3", "0x10", "+5", " ", "1,2"):
        yield Case(f"header-length-{length!r}", binary(sized(8), two, length=length))
    for size in (-8, "8", 1.5, 4, 12, 2**63, 2**70, True, None):
        yield Case(f"binary-size-{size!r}", binary(sized(size), two), names="binary_data_size" if size in (4, 12) else "")
    yield Case(
        "header-length-twice",
        binary(sized(8), two).replace(b"\r\n\r\n", b"\r\nInference-Header-Content-Length: 5\r\n\r\n", 1),
        names="inference-header-content-length",
    )
    yield Case("binary-shape-overflow", binary(sized(8, [2**62]), two), names="inputs[0].shape")
    yield Case("binary-truncated", binary(sized(8), two[:4]), names="binary_data_size")
    yield Case("binary-left-over", binary(sized(8), two + two))
    yield Case("binary-and-data", binary({"inputs": [tensor(parameters={"binary_data_size": 8})]}, two), names="inputs[0]")
    yield Case("binary-overflow", binary(sized(8, [2**61, 4]), two), names="shape")
    yield Case("raw-wrong-size", http("/v2/models/fixed/infer", two, Inference_Header_Content_Length="0"))
    yield Case("raw-two-inputs", http("/v2/models/simple/infer", two, Inference_Header_Content_Length="0"))
    path = "/v2/models/identity_bytes/infer"
    for name, tail in {
        "beyond": b"\xff\xff\xff\xff" + b"a",
        "short-prefix": b"\x01\0\0",
        "too-few": b"\x01\0\0\0a",
        "too-many": b"\0\0\0\0" * 3,
        "negative": b"\x01\0\0\x80a\0\0\0\0",
    }.items():
        yield Case(f"bytes-{name}", binary(sized(len(tail), datatype="BYTES"), tail, path=path), names="inputs[0]")


def wrong_paths() -> Iterator[Case]:
    body = json.dumps({"inputs": [tensor()]}).encode()
    for name in (
        "..",
        "../digits",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "a%00b",
        ".hidden",
        "x" * 200,
        "x" * 8000,
        "a b",
        "ünï",
        "C:\\x",
        "",
    ):
        quoted = name.replace(" ", "%20").encode().decode("latin-1")
        yield Case(f"model-{name[:24]!r}", http(f"/v2/models/{quoted}/infer", body), (400, 404, 414, 431))
        yield Case(f"load-{name[:24]!r}", http(f"/v2/repository/models/{quoted}/load", b"{}"), (400, 404, 414, 431))
    for version in ("0", "-1", "+1", "01", "", "x", "99999999999999999999999", "1.0", "..", "%31"):
        yield Case(f"version-{version}", http(f"/v2/models/versioned/versions/{version}/infer", body), (400, 404))
    yield Case("load-config-not-json", http("/v2/repository/models/digits/load", b'{"parameters": {"config": "{"}}'))
    yield Case(
        "load-file-outside", http("/v2/repository/models/digits/load", b'{"parameters": {"file:../../x": "AAAA"}}')
    )
    yield Case("index-not-json", http("/v2/repository/index", b"{"))
    yield Case("method", http(INFER, b"", method="BREW"), (405,))
    yield Case(
        "register-outside",
        http("/v2/systemsharedmemory/region/r/register", b'{"key": "/../../etc/passwd", "offset": 0, "byte_size": 4}'),
    )
    yield Case(
        "register-huge",
        http(
            "/v2/systemsharedmemory/region/r/register",
            b'{"key": "/x", "offset": 18446744073709551615, "byte_size": 18446744073709551615}',
        ),
    )


def oversize() -> Iterator[Case]:
    good = json.dumps({"inputs": [tensor()]}).encode()
    yield Case("length-over-limit", http(INFER, b"", length=BODY_LIMIT + 1), (413,))
    yield Case("length-absurd", http(INFER, b"", length=2**63), (400, 413))
    yield Case("length-twice", http(INFER, good, Content_Length="3"))
    yield Case("length-text", http(INFER, good, length="abc"))
    yield Case("length-negative", http(INFER, good, length=-5))
    yield Case("header-huge", http(INFER, good, X_Filler="a" * 40_000), (431,))
    yield Case("headers-many", http(INFER, good, **{f"X_{i}": "a" for i in range(2000)}), (431,))
    yield Case("target-huge", http("/" + "a" * 70_000, b""), (400, 404, 414, 431))
    zeros = zlib.compressobj(9, wbits=31)
    bomb = b"".join(zeros.compress(b"\0" * 2**20) for _ in range(256)) + zeros.flush()
    yield Case("gzip-bomb", http(INFER, bomb, Content_Encoding="gzip"), (413,), inflates=True)
    flat = zlib.compressobj(9, wbits=15)
    bomb = b"".join(flat.compress(b"[" * 2**20) for _ in range(256)) + flat.flush()
    yield Case("deflate-bomb", http(INFER, bomb, Content_Encoding="deflate"), (413,), inflates=True)
    yield Case(
        "gzip-of-gzip", http(INFER, gzip.compress(gzip.compress(good)), Content_Encoding="gzip, gzip"), (400, 415)
    )
    yield Case("gzip-truncated", http(INFER, gzip.compress(good)[:-10], Content_Encoding="gzip"))
    yield Case("gzip-garbage", http(INFER, b"\x1f\x8b" + b"garbage" * 9, Content_Encoding="gzip"))
    yield Case("gzip-checksum", http(INFER, gzip.compress(good)[:-8] + b"\0" * 8, Content_Encoding="gzip"))
    yield Case("gzip-not", http(INFER, good, Content_Encoding="gzip"))
    yield Case("encoding-unknown", http(INFER, good, Content_Encoding="br"), names="br")
    yield Case("gzip-header-length", binary(sized(8), b"", length=10**6, Content_Encoding="gzip"))


def not_http() -> Iterator[Case]:
    for name, payload in {
        "noise": bytes(range(256)) * 4,
        "tls-hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
        "version": b"GET / HTTP/9.9\r\n\r\n",
        "space-in-header": b"GET /v2 HTTP/1.1\r\nHost : x\r\n\r\n",
        "nul-in-header": b"GET /v2 HTTP/1.1\r\nHost: a\0b\r\n\r\n",
        "bare-newlines": b"GARBAGE\n\n\n\n",
        "chunk-size": b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        "chunk-size-overflow": b"POST "
        + INFER.encode()
        + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "length-and-chunked": b"POST "
        + INFER.encode()
        + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    }.items():
        # 0: closed without an answer, which is one to something that is not HTTP.
        yield Case(f"http-{name}", payload, (0, 400, 505))
    for name, headers in {"none": b"", "two": b"Host: x\r\nHost: y\r\n"}.items():
        request = b"GET /v2 HTTP/1.1\r\n" + headers + b"Connection: close\r\n\r\n"
        yield Case(f"host-{name}", request, names="header host")
    chunked = b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for name, body in {"size": b"ZZZ\r\n", "overflow": b"f" * 18 + b"\r\n", "end": b"5\r\nhelloX\r\n"}.items():
        yield Case(f"chunked-bad-{name}", chunked + body, names="request body")
    for name, payload in {
        "chunked": chunked + b"5\r\nhel",
        "sized": http(INFER, b"half", length=100),
        "control": http("/v2/repository/index", b"half", length=100),
    }.items():
        yield Case(f"half-closed-{name}", payload, names="request body", half_close=True)


def cases() -> list[Case]:
    groups = (broken_json, wrong_fields, wrong_binary, wrong_paths, oversize, not_http)
    return [case for group in groups for case in group()]
