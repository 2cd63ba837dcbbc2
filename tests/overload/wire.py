"""Requests as bytes, for clients that misuse a connection in ways that no client library allows."""

from __future__ import annotations

import json
import socket

import numpy as np


def address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def connect(text: str, receive_buffer: int | None = None) -> socket.socket:
    """A connection. With a small receive buffer, the peer soon notices a client that does not read."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(30)
    connection.connect(address(text))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def infer(model: str, inputs: int, *, rows: int = 1, body_bytes: int | None = None, **headers: str) -> bytes:
    """An inference request with binary tensors both ways; its JSON is padded with spaces to `body_bytes`."""
    data = np.zeros((rows, inputs), dtype=np.float32).tobytes()
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, inputs], "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    if body_bytes is not None:
        header = header.ljust(body_bytes - len(data))
    return post(model, header + data, Inference_Header_Content_Length=str(len(header)), **headers)


def post(model: str, body: bytes, *, length: int | None = None, **headers: str) -> bytes:
    """A POST to the model; `length` announces another length than the body's."""
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "host: localhost"]
    if "Transfer_Encoding" not in headers:
        lines.append(f"content-length: {len(body) if length is None else length}")
    lines += [f"{name.replace('_', '-').lower()}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of the next answer; status 0 when the connection was closed without one."""
    received = b""
    try:
        while b"\r\n\r\n" not in received:
            chunk = connection.recv(65536)
            if not chunk:
                return 0, {}, received
            received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        chunks, have, length = [body], len(body), int(headers.get("content-length", 0))
        while have < length and (chunk := connection.recv(1 << 20)):
            chunks.append(chunk)
            have += len(chunk)
        return int(first.split(" ")[1]), headers, b"".join(chunks)
    except ConnectionResetError:
        return 0, {}, b""
