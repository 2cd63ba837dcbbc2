"""Runs one `model.py` for the server.

Descriptor 0 is a socket for commands: the server asks, this process answers. The first command brings a second socket,
for all that happens besides: responses of decoupled models, log messages, metrics and calls of other models.

A message is a packet with a head of 16 bytes (length of its JSON, place of its body, length of its body) and a body: the
JSON, then the tensors, each at a multiple of 64. A body that is too long for a packet lies in a memory file, whose
descriptor comes with the packet when it is a new one.
"""

import array
import asyncio
import importlib
import inspect
import json
import mmap
import os
import socket
import struct
import sys
import threading
import traceback

import triton_python_backend_utils as pb_utils

PACKET_MAX = 64 * 1024
ALIGNMENT = 64
HEAD = struct.Struct("<IIQ")
IN_PACKET, IN_FILE, IN_NEW_FILE = 0, 1, 2
# Added to the place: arrays refer to the last file of the receiver, who then takes another one for its next message.
HOLDS = 4
# Responses of one request that may wait for its client.
WINDOW = 32
EXECUTE_FAILED = "Failed to process the request(s) for model '{}', message: {}"


class Socket:
    """One of the two sockets. Sending is safe from any thread; only one thread receives."""

    def __init__(self, sock, reuse):
        self._socket = sock
        self._packet = bytearray(PACKET_MAX + HEAD.size)
        self._view = memoryview(self._packet)
        self._sending = threading.Lock()
        # Whether the peer has read a file before the next message is sent, so that the file can be used again.
        self._reuse = reuse
        self._file = None
        self._file_bytes = 0
        self._received = None
        self._unused = 0

    def receive(self):
        """The JSON, the body, where its tensors begin, and descriptors."""
        size, control, _, _ = self._socket.recvmsg_into([self._packet], socket.CMSG_SPACE(4), 0)
        if size == 0:
            return None, None, 0, []
        descriptors = []
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
                descriptors.extend(received)
        json_bytes, place, body_bytes = HEAD.unpack_from(self._packet)
        if place == IN_PACKET:
            body = bytearray(self._view[HEAD.size : HEAD.size + body_bytes])
        else:
            if place == IN_NEW_FILE:
                length = os.fstat(descriptors[0]).st_size
                self._received = mmap.mmap(descriptors[0], length, mmap.MAP_SHARED)
                os.close(descriptors.pop(0))
                self._unused = sys.getrefcount(self._received)
            body = self._received
        head = json.loads(bytes(memoryview(body)[:json_bytes]))
        return head, body, aligned(json_bytes), descriptors

    def _holds(self):
        if self._received is None or sys.getrefcount(self._received) <= self._unused:
            return False
        self._received = None
        return True

    def send(self, head, layout=None, tell_holds=False):
        """Sends a message with the tensors of a layout, which is emptied.

        With `tell_holds`, the head says whether arrays are left that refer to the last file that was received.
        """
        encoded = json.dumps(head, separators=(",", ":")).encode()
        parts = [encoded]
        length = len(encoded)
        start = aligned(length)
        if layout is not None:
            for offset, buffer in layout.buffers:
                if len(buffer):
                    parts.append(bytes(start + offset - length))
                    parts.append(buffer)
                    length = start + offset + len(buffer)
            layout.buffers.clear()
            buffer = None
        with self._sending:
            control = []
            if length <= PACKET_MAX:
                body, place = b"".join(parts), IN_PACKET
            else:
                body, place = b"", IN_FILE
                if self._file is None or self._file_bytes < length:
                    self._close_file()
                    self._file = os.memfd_create("tessera-outputs", 0)
                    self._file_bytes = 1 << (length - 1).bit_length()
                    os.ftruncate(self._file, self._file_bytes)
                    place = IN_NEW_FILE
                    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._file]))]
                write(self._file, parts)
            parts.clear()
            if tell_holds and self._holds():
                place |= HOLDS
            self._socket.sendmsg([HEAD.pack(len(encoded), place, length), body], control)
            if not self._reuse:
                self._close_file()

    def _close_file(self):
        if self._file is not None:
            os.close(self._file)
            self._file = None


def own(body):
    """A body that the next message does not overwrite."""
    return body if isinstance(body, bytearray) else bytearray(body)


def aligned(length):
    return (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write(file, parts):
    at = 0
    for part in parts:
        rest = memoryview(part).cast("B")
        while rest:
            written = os.pwrite(file, rest, at)
            at += written
            rest = rest[written:]


class Layout:
    """Places of tensors in a message."""

    def __init__(self):
        self.buffers = []
        self._end = 0

    def place(self, tensors):
        placed = []
        for tensor in tensors:
            datatype, shape, buffer = tensor._encode()
            offset = aligned(self._end)
            size = len(buffer)
            self._end = offset + size
            self.buffers.append((offset, buffer))
            placed.append([tensor._name, datatype, shape, offset, size])
        return placed

    def response(self, response):
        """A response or its error as the server reads it."""
        error = response._error
        if error is not None:
            return {"code": error._code, "error": error._message}
        result = {"outputs": self.place(response._tensors)}
        if response._parameters:
            result["parameters"] = response._parameters
        return result


def describe(error):
    """An exception as Triton's clients see it: type, message, and the functions from the innermost outwards."""
    if isinstance(error, _WrongCount):
        return f"{error}\n"
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith("tessera/") and not frame.filename.startswith("<frozen")]
    places = "".join(f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in reversed(frames))
    return f"{type(error).__name__}: {error}\n\nAt:\n{places}"


class ResponseSender:
    """Sends the responses to one request."""

    def __init__(self, host, number, slot):
        self._host = host
        self._number = number
        # Of a model that gives one response: where it waits for the end of `execute`.
        self._slot = slot
        self._window = threading.Semaphore(WINDOW)
        self._closed = False

    def send(self, response=None, flags=0):
        if flags not in (0, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise pb_utils.TritonModelException(
                "Unable to send response. Unsupported flag provided."
            )
        if self._closed:
            raise pb_utils.TritonModelException("Unable to send response. Response sender has been closed.")
        if response is None and not flags:
            raise pb_utils.TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        last = bool(flags)
        if self._slot is not None:
            self._slot.put(response, last)
            self._closed = last
            return
        self._host.respond(self, response, last)
        self._closed = last

    def is_cancelled(self):
        return self._host.is_cancelled(self._number)

    def __del__(self):
        # The server counts the request as unfinished until its last response.
        if not self._closed and self._slot is None:
            try:
                self.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception:
                pass


class Slot:
    """The one response that a model which is not decoupled sends with a response sender."""

    def __init__(self):
        self._over = threading.Event()
        self._response = None

    def put(self, response, last):
        if response is not None:
            if self._response is not None:
                raise pb_utils.TritonModelException(
                    "Unable to send response. The model is not decoupled: expected one response"
                )
            self._response = response
        if last:
            self._over.set()

    def wait(self):
        self._over.wait()
        return self._response


class Host:
    """The server, as `triton_python_backend_utils` reaches it."""

    def __init__(self, commands):
        self.commands = commands
        self.events = None
        self.model_dir = ""
        self.decoupled = False
        self._main = threading.get_ident()
        # Whether `execute` runs, and the lock of who asks on the socket for commands until it ends.
        self._running = False
        self._asking = threading.Lock()
        self._senders = {}
        self._calls = {}
        self._calls_made = 0
        self._lock = threading.Lock()
        self._listener = None

    def connect(self, descriptor):
        self.events = Socket(socket.socket(fileno=descriptor), reuse=False)

    # Responses

    def response_sender(self, request):
        if not self.decoupled:
            request._one_response = Slot()
            return ResponseSender(self, request._number, request._one_response)
        sender = ResponseSender(self, request._number, None)
        self._listen()
        self._senders[request._number] = sender._window
        return sender

    def respond(self, sender, response, last):
        head = {"op": "respond", "request": sender._number, "last": last}
        layout = Layout()
        if response is not None:
            if not isinstance(response, pb_utils.InferenceResponse):
                raise TypeError(f"send: expected pb_utils.InferenceResponse, got {type(response).__name__}")
            sender._window.acquire()
            head["response"] = layout.response(response)
        if last:
            self._senders.pop(sender._number, None)
        self.events.send(head, layout)

    # Calls

    def is_cancelled(self, number):
        return bool(self._ask({"op": "cancelled", "request": number})[0].get("cancelled"))

    def is_model_ready(self, name, version):
        return bool(self._ask({"op": "ready", "model": name, "version": version})[0].get("ready"))

    async def call_async(self, request, decoupled):
        return await asyncio.get_running_loop().run_in_executor(None, self.call, request, decoupled)

    def call(self, request, decoupled):
        layout = Layout()
        head = {
            "op": "call",
            "model": request._model,
            "version": str(request._version) if int(request._version) > 0 else "",
            "id": str(request._id),
            "outputs": request._outputs,
            "flags": request._flags,
            "timeout": request._timeout,
            "correlation": request._correlation,
            "parameters": request._parameters,
            "inputs": layout.place(request._inputs),
        }
        answer, body = self._ask(head, layout)
        responses = [self._response(one, body) for one in answer["responses"]]
        return iter(responses) if decoupled else responses[0]

    @staticmethod
    def _response(answer, body):
        if "error" in answer:
            error = pb_utils.TritonError(answer["error"], answer.get("code", pb_utils.TritonError.INTERNAL))
            return pb_utils.InferenceResponse(error=error)
        tensors = [
            pb_utils.Tensor._received(name, datatype, shape, body, offset, size)
            for name, datatype, shape, offset, size in answer["outputs"]
        ]
        return pb_utils.InferenceResponse(tensors, parameters=answer.get("parameters"))

    def _ask(self, head, layout=None):
        if self._running and threading.get_ident() == self._main:
            with self._asking:
                answer, body, start = self._command(head, layout)
                return answer, own(body)[start:]
        self._listen()
        waiting = _Waiting()
        with self._lock:
            self._calls_made += 1
            number = self._calls_made
            self._calls[number] = waiting
        head = {**head, "call": number}
        with self._asking:
            # While `execute` runs, the server runs the call on the lane of this model: a request would wait for the lane.
            if self._running and head["op"] == "call":
                self._command(head, layout)
            else:
                self.events.send(head, layout)
        return waiting.wait()

    def _command(self, head, layout):
        self.commands.send({"ask": head}, layout)
        answer, body, start, _ = self.commands.receive()
        if body is None:
            # The server has ended.
            os._exit(0)
        return answer, body, start

    def running(self, running):
        with self._asking:
            self._running = running

    def _listen(self):
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(target=self._read_events, name="tessera-events", daemon=True)
                self._listener.start()

    def _read_events(self):
        while True:
            head, body, start, _ = self.events.receive()
            if head is None:
                os._exit(0)
            if "credit" in head:
                window = self._senders.get(head["request"])
                for _ in range(head["credit"] if window else 0):
                    window.release()
                continue
            with self._lock:
                waiting = self._calls.pop(head["call"], None)
            if waiting is not None:
                waiting.put(head, own(body)[start:])

    # Log and metrics

    def log(self, level, message):
        self.events.send({"op": "log", "level": int(level), "message": str(message)[:16000]})

    def describe_metric(self, name, description, kind):
        self.events.send({"op": "metric_family", "name": str(name), "description": str(description), "kind": int(kind)})

    def set_metric(self, family, labels, kind, value):
        self.events.send({"op": "metric", "name": family, "labels": labels, "kind": int(kind), "value": value})


class _Waiting:
    """A call's answer."""

    def __init__(self):
        self._over = threading.Event()
        self._answer = None

    def put(self, head, body):
        self._answer = (head, body)
        self._over.set()

    def wait(self):
        self._over.wait()
        return self._answer


class Runner:
    """The model of this process."""

    def __init__(self, host):
        self._host = host
        self._name = ""
        self._model = None
        self._inputs = []
        self._outputs = []
        self._loop = None

    def model_class(self, start):
        """Imports the model's file. Its folder and that of its version can be imported from."""
        version, stem = start["version"], start["file"]
        folder = start["folder"]
        self._host.model_dir = os.path.join(folder, version)
        sys.path[:0] = [folder, self._host.model_dir]
        module = importlib.import_module(f"{version}.{stem}")
        found = getattr(module, "TritonPythonModel", None)
        if found is None:
            raise AttributeError(f"{version}/{stem}.py: expected a class named TritonPythonModel")
        return found

    def complete(self, start):
        """The model's configuration after `auto_complete_config`."""
        model = self.model_class(start)
        config = pb_utils.ModelConfig(start["config"])
        if hasattr(model, "auto_complete_config"):
            completed = model.auto_complete_config(config)
            if not isinstance(completed, pb_utils.ModelConfig):
                raise TypeError(
                    "auto_complete_config function in model must return a valid pb.ModelConfig object"
                )
            config = completed
        return config.as_dict()

    def start(self, start):
        host = self._host
        model = self.model_class(start)
        config = start["config"]
        if start["auto_complete"] and hasattr(model, "auto_complete_config"):
            config = model.auto_complete_config(pb_utils.ModelConfig(config)).as_dict()
        host.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._name = start["instance"]
        # The server sets control inputs of sequences, and sends them after the others.
        controls = (config.get("sequence_batching") or {}).get("control_input", ())
        self._inputs = [tensor["name"] for tensor in (*config.get("input", ()), *controls)]
        self._outputs = [tensor["name"] for tensor in config.get("output", ())]
        self._model = model()
        if not hasattr(self._model, "execute"):
            raise AttributeError("TritonPythonModel: expected a method named execute")
        if hasattr(self._model, "initialize"):
            arguments = {**start["arguments"], "model_config": json.dumps(config, separators=(",", ":"))}
            self._model.initialize(arguments)
        return {"config": config}

    def request(self, received, body, start):
        (number, request_id, correlation, outputs, flags, timeout, parameters, placed) = received
        request = pb_utils.InferenceRequest.__new__(pb_utils.InferenceRequest)
        request._inputs = [
            pb_utils.Tensor._received(name, place[0], place[1], body, start + place[2], place[3])
            for name, place in zip(self._inputs, placed)
            if place is not None
        ]
        request._id = request_id
        request._correlation = correlation
        request._outputs = self._outputs if outputs is None else outputs
        request._model = self._name
        request._version = -1
        request._flags = flags
        request._timeout = timeout
        request._parameters = parameters
        request._number = number
        request._sender = None
        request._one_response = None
        return request

    def run(self, message):
        """Runs one batch and answers the command. Takes the message apart: who refers to its file is counted."""
        head, body, start, _ = message
        message.clear()
        host = self._host
        requests = [self.request(received, body, start) for received in head["requests"]]
        body = None
        failure, responses = None, None
        host.running(True)
        try:
            responses = self._model.execute(requests)
            if inspect.iscoroutine(responses):
                responses = self._run_coroutine(responses, requests)
            if not host.decoupled:
                responses = self._checked(requests, responses)
            elif responses is not None:
                raise pb_utils.TritonModelException(
                    f"Python model '{self._name}' is using the decoupled mode and the execute function must return None."
                )
        except (Exception, SystemExit) as error:
            failure = EXECUTE_FAILED.format(self._name, describe(error))
            error.__traceback__ = None
        finally:
            host.running(False)
        layout = Layout()
        if failure is None and not host.decoupled:
            try:
                results = [layout.response(response) for response in responses]
            except Exception as error:
                failure = EXECUTE_FAILED.format(self._name, describe(error))
        if failure is not None:
            if host.decoupled:
                self.fail_unfinished(requests, failure)
                failure = None
            else:
                layout = Layout()
        if failure is not None:
            answer = {"error": failure}
        else:
            answer = {} if host.decoupled else {"results": results}
        del requests, responses
        host.commands.send(answer, layout, tell_holds=True)

    def _run_coroutine(self, coroutine, requests):
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            if self._host.decoupled:
                threading.Thread(target=self._loop.run_forever, name="tessera-async", daemon=True).start()
        if not self._host.decoupled:
            return self._loop.run_until_complete(coroutine)
        # A decoupled model answers while later batches run.
        asyncio.run_coroutine_threadsafe(self._watch(coroutine, requests), self._loop)
        return None

    async def _watch(self, coroutine, requests):
        try:
            await coroutine
        except Exception as error:
            self.fail_unfinished(requests, EXECUTE_FAILED.format(self._name, describe(error)))

    def fail_unfinished(self, requests, failure):
        """Ends the requests that did not get their last response."""
        for request in requests:
            sender = request.get_response_sender()
            if not sender._closed:
                error = pb_utils.InferenceResponse(error=pb_utils.TritonError(failure))
                sender.send(error, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _checked(self, requests, responses):
        """The response of each request."""
        sent = [request._one_response for request in requests]
        if responses is None:
            responses = [None] * len(requests)
        try:
            responses = list(responses)
        except TypeError:
            raise pb_utils.TritonModelException(
                f"expected a list of InferenceResponse objects, execute returned {type(responses).__name__}"
            ) from None
        if len(responses) != len(requests):
            raise _WrongCount(len(requests), len(responses))
        for index, (slot, response) in enumerate(zip(sent, responses)):
            if response is None and slot is not None:
                response = slot.wait()
            if not isinstance(response, pb_utils.InferenceResponse):
                raise pb_utils.TritonModelException(
                    f"Expected an 'InferenceResponse' object in the execute function return list, found type "
                    f"'{type(response).__name__}'."
                )
            responses[index] = response
        return responses

    def stop(self):
        if self._model is not None and hasattr(self._model, "finalize"):
            self._model.finalize()


class _WrongCount(Exception):
    def __init__(self, requests, responses):
        super().__init__(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{requests}, and InferenceResponse(s) size is:{responses}"
        )


def main():
    commands = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.reconfigure(line_buffering=True)
    host = Host(Socket(commands, reuse=True))
    pb_utils._host = host
    runner = Runner(host)
    while True:
        message = list(host.commands.receive())
        head, descriptors = message[0], message[3]
        if head is None:
            # The server has ended.
            try:
                runner.stop()
            finally:
                os._exit(0)
        operation = head["op"]
        if operation == "run":
            head = None
            runner.run(message)
            continue
        try:
            if operation == "start":
                host.connect(descriptors[0])
                answer = runner.start(head)
            elif operation == "complete":
                host.connect(descriptors[0])
                answer = {"config": runner.complete(head)}
            elif operation == "stop":
                runner.stop()
                answer = {}
            else:
                answer = {"error": f"unknown command `{operation}`"}
        except (Exception, SystemExit) as error:
            answer = {"error": describe(error)}
        host.commands.send(answer)
        if operation in ("stop", "complete") or "error" in answer:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
