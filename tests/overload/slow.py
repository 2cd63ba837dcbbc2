"""Clients that send or read very slowly, and how the server ends their connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from overload import wire

# A slow sender sends one byte per interval.
DRIP_SECONDS = 0.1
# A slow reader reads 1 KB per second.
SIP_BYTES, SIP_SECONDS = 100, 0.1
# Small, so that the kernel does not receive the response for the client.
RECEIVE_BUFFER = 4096


@dataclass(frozen=True)
class Ended:
    """How the server ended a slow client: after how many seconds, and with which message."""

    seconds: float
    said: bytes


Client = Callable[[], Awaitable[Ended]]


class Crowd:
    """Slow clients on their own thread, until the server has closed all of them or `leave` is called."""

    def __init__(self, clients: dict[str, list[Client]]) -> None:
        self._clients = clients
        self._ended: dict[str, list[Ended | None]] = {}
        self._lateness = 0.0
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stay())

    async def _stay(self) -> None:
        tasks = {name: [asyncio.ensure_future(one()) for one in them] for name, them in self._clients.items()}
        watch = asyncio.ensure_future(self._watch())
        await self._leave.wait()
        watch.cancel()
        for name, them in tasks.items():
            self._ended[name] = [task.result() if task.done() else None for task in them]
        # The runner cancels the remaining clients, which closes their connections.

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + DRIP_SECONDS
            await asyncio.sleep(DRIP_SECONDS)
            self._lateness = max(self._lateness, time.monotonic() - due)

    @property
    def lateness(self) -> float:
        """The longest delay of this thread, in seconds: the times of its clients may be that much too long."""
        return self._lateness

    def leave(self) -> dict[str, list[Ended | None]]:
        """How each client ended; None if the server has not closed it."""
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self._ended


async def _open(address: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, wire.address(address))
    return connection


async def _receive(connection: socket.socket, size: int, seconds: float) -> bytes | None:
    """Data received within that time: empty if the connection is closed, None if nothing arrived."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    # Not sock_recv: on a timeout, it may drop data that has just arrived.
    loop.add_reader(connection, readable.set)
    try:
        # Unlike wait_for, it does not report a cancellation as a result.
        async with asyncio.timeout(seconds):
            await readable.wait()
        return connection.recv(size)
    except (TimeoutError, BlockingIOError):
        return None
    except OSError:
        return b""
    finally:
        loop.remove_reader(connection)


def sender(address: str, at_once: bytes) -> Client:
    """Sends `at_once` immediately, then one byte per interval."""

    async def client() -> Ended:
        connection, said, started = await _open(address), b"", time.monotonic()
        with connection:
            try:
                await asyncio.get_running_loop().sock_sendall(connection, at_once)
                while (chunk := await _receive(connection, 65536, DRIP_SECONDS)) != b"":
                    said += chunk or b""
                    await asyncio.get_running_loop().sock_sendall(connection, b"x")
            except OSError:
                pass
            return Ended(time.monotonic() - started, said)

    return client


def reader(address: str, request: bytes) -> Client:
    """Sends a request and reads its response slowly. The time counts from the first bytes of the response."""

    async def client() -> Ended:
        connection, said = await _open(address), b""
        with connection:
            # The server may reject a large request and stop reading.
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(connection, request)
            said = await _receive(connection, SIP_BYTES, 3600) or b""
            started = time.monotonic()
            # Shows a reset immediately; a read would first return everything that the kernel has received.
            while not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                chunk = await _receive(connection, SIP_BYTES, 3600)
                if chunk == b"":
                    break
                said = (said + (chunk or b""))[:400]
                await asyncio.sleep(SIP_SECONDS)
            return Ended(time.monotonic() - started, said)

    return client


def grpc_call(address: str, message: bytes, sent: int) -> Client:
    """Starts a call, sends `sent` bytes of its message, then one byte per interval, and never opens the flow-control window.

    The time of a call whose message is sent whole counts from its response's headers.
    """

    async def client() -> Ended:
        connection, started = await _open(address), time.monotonic()
        loop, said = asyncio.get_running_loop(), b""
        state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        state.initiate_connection()
        headers = {":method": "POST", ":scheme": "http", ":authority": "localhost"}
        headers |= {":path": "/inference.GRPCInferenceService/ModelInfer"}
        headers |= {"content-type": "application/grpc", "te": "trailers"}
        state.send_headers(1, list(headers.items()))
        framed = b"\0" + len(message).to_bytes(4, "big") + message
        sent_now = min(sent, len(framed))
        state.send_data(1, framed[:sent_now], end_stream=sent_now == len(framed))
        with connection:
            try:
                while True:
                    await loop.sock_sendall(connection, state.data_to_send())
                    chunk = await _receive(connection, 65536, DRIP_SECONDS)
                    if chunk == b"":
                        break
                    for event in state.receive_data(chunk or b""):
                        if isinstance(event, h2.events.ResponseReceived) and sent >= len(framed):
                            started = time.monotonic()
                        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                            said += "".join(f"{name}: {value}\n" for name, value in event.headers).encode()
                        if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                            return Ended(time.monotonic() - started, said)
                    if sent_now < len(framed):
                        state.send_data(1, framed[sent_now : sent_now + 1], end_stream=sent_now + 1 == len(framed))
                        sent_now += 1
            except (OSError, h2.exceptions.ProtocolError) as error:
                said += str(error).encode()
            return Ended(time.monotonic() - started, said)

    return client
