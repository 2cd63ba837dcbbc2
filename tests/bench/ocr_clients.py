"""Clients of the OCR example: one calls the pipeline, the other chains the models itself. Both send requests on a schedule."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

# Processes and threads of a client. Each process has one connection.
PROCESSES, THREADS = 2, 8


class Caller:
    """One connection."""

    def __init__(self, address: dict[str, str], _: Path) -> None:
        self.client = tgrpc.InferenceServerClient(address["grpc"])

    def end_thread(self) -> None:
        """Called by each thread that has called `read`."""


def inputs(tensors: dict[str, np.ndarray], module=tgrpc) -> list:
    """Binary tensors."""
    made = []
    for name, array in tensors.items():
        tensor = module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def timeout_us(deadline: float) -> int:
    """Microseconds that are left; raises if the answer would be late."""
    left = int((deadline - time.monotonic()) * 1e6)
    if left <= 0:
        raise TimeoutError
    return left


class PipelineClient(Caller):
    """Sends the file, and gets texts."""

    def read(self, content: bytes, deadline: float) -> list[bytes]:
        tensors = inputs({"image": np.frombuffer(content, np.uint8)})
        return self.client.infer("ocr", tensors, timeout=timeout_us(deadline)).as_numpy("texts").tolist()


class ChainClient(Caller):
    """Does with the package's code what the Python stages do, and calls the three models. All lines of an image are one request to `cls`;
    the groups of lines go to `rec` at the same time."""

    def __init__(self, address: dict[str, str], models: Path) -> None:
        super().__init__(address, models)
        sys.path.insert(0, str(models / "decode" / "1"))
        import package

        self.package, self.ocr = package, package.load()

    def call(self, model: str, x: np.ndarray, output: str, deadline: float) -> np.ndarray:
        return self.client.infer(model, inputs({"x": x}), timeout=timeout_us(deadline)).as_numpy(output)

    def call_all(self, model: str, parts: list[np.ndarray], output: str, deadline: float) -> list[np.ndarray]:
        """Answers to requests that run at the same time."""
        if len(parts) == 1:
            return [self.call(model, parts[0], output, deadline)]
        answers: list = [None] * len(parts)
        done = threading.Semaphore(0)

        def keep(at: int):
            def answered(result, error) -> None:
                answers[at] = (result, error)
                done.release()

            return answered

        for at, x in enumerate(parts):
            self.client.async_infer(model, inputs({"x": x}), keep(at), timeout=timeout_us(deadline))
        for _ in parts:
            done.acquire()
        for _, error in answers:
            if error is not None:
                raise error
        return [result.as_numpy(output) for result, _ in answers]

    def read(self, content: bytes, deadline: float) -> list[bytes]:
        image, frame, x = self.package.prepare(self.ocr, content)
        found = self.call("det", x, "sigmoid_0.tmp_0", deadline)
        boxes, crops = self.package.crop(self.ocr, image, found, frame)
        if not crops:
            return []
        rows = self.package.classify_inputs(self.ocr, crops)
        scores = self.call("cls", rows, "save_infer_model/scale_0.tmp_1", deadline)
        lines = self.package.rotate(self.ocr, crops, scores)
        order, groups = self.package.group_lines(self.ocr, lines)
        groups = self.call_all("rec", groups, "softmax_11.tmp_0", deadline)
        _, texts, _ = self.package.read(self.ocr, boxes, order, groups)
        return [text.encode() for text in texts]


class HttpChainClient(ChainClient):
    """The same over HTTP, with connections of its own for each thread, which stay open."""

    def __init__(self, address: dict[str, str], models: Path) -> None:
        super().__init__(address, models)
        self.address, self.local = address["http"], threading.local()

    def call_all(self, model: str, parts: list[np.ndarray], output: str, deadline: float) -> list[np.ndarray]:
        if not hasattr(self.local, "client"):
            self.local.client = thttp.InferenceServerClient(self.address, concurrency=4, network_timeout=600.0, connection_timeout=600.0)
        client = self.local.client
        left = timeout_us(deadline)
        started = [client.async_infer(model, inputs({"x": x}, thttp), timeout=left) for x in parts]
        answers, errors = [], []
        for one in started:
            try:
                answers.append(one.get_result().as_numpy(output))
            except InferenceServerException as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def call(self, model: str, x: np.ndarray, output: str, deadline: float) -> np.ndarray:
        return self.call_all(model, [x], output, deadline)[0]


    def end_thread(self) -> None:
        if hasattr(self.local, "client"):
            self.local.client.close()
            del self.local.client


CLIENTS = {"pipeline": PipelineClient, "chain, gRPC": ChainClient, "chain, HTTP": HttpChainClient}


@dataclass(frozen=True)
class Job:
    """A request: when it is sent, in seconds after the start, and which image."""

    at: float
    image: int


def process(kind: str, address: dict[str, str], models: Path, images: list[bytes], link) -> None:
    """Runs schedules that come over `link` until it gets `None`. Answers are lists of (latency or None, texts, reason)."""
    client = CLIENTS[kind](address, models)
    link.send("ready")
    while (order := link.recv()) is not None:
        begun, objective, jobs, count = order
        before = time.process_time()
        answers: list = [None] * len(jobs)
        waiting, lock = iter(enumerate(jobs)), threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    at, job = next(waiting, (None, None))
                if job is None:
                    client.end_thread()
                    return
                arrival = begun + job.at
                time.sleep(max(0.0, arrival - time.monotonic()))
                try:
                    texts = client.read(images[job.image], arrival + objective)
                    answers[at] = (time.monotonic() - arrival, texts, None)
                except Exception as error:  # noqa: BLE001 - the reason is counted
                    answers[at] = (None, None, str(error) or type(error).__name__)

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        link.send((answers, time.process_time() - before))


class Client:
    """The processes of one client. As a context manager, it ends them."""

    def __init__(self, kind: str, address: dict[str, str], models: Path, images: list[bytes]) -> None:
        context = multiprocessing.get_context("spawn")
        self.links, self.processes = [], []
        for _ in range(PROCESSES):
            own, other = context.Pipe()
            child = context.Process(target=process, args=(kind, address, models, images, other), daemon=True)
            child.start()
            self.links.append(own)
            self.processes.append(child)
        for link in self.links:
            assert link.recv() == "ready"

    def run(self, jobs: list[Job], objective: float) -> tuple[list, float]:
        """Answers in the order of the jobs, and CPU seconds of the client."""
        begun = time.monotonic() + 0.2
        for at, link in enumerate(self.links):
            link.send((begun, objective, jobs[at::PROCESSES], THREADS))
        answers, cpu = [None] * len(jobs), 0.0
        for at, link in enumerate(self.links):
            answers[at::PROCESSES], seconds = link.recv()
            cpu += seconds
        return answers, cpu

    def one_by_one(self, images: list[int], objective: float) -> tuple[list, float]:
        """As `run`, for one request at a time."""
        self.links[0].send((time.monotonic(), objective, [Job(0.0, image) for image in images], 1))
        return self.links[0].recv()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        for link, child in zip(self.links, self.processes):
            link.send(None)
            child.join(30)
