"""`sequence_batching` of `config.pbtxt` on the live server, through tritonclient."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from tritonclient.utils import InferenceServerException

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from fixtures import sequences  # noqa: E402
from fixtures.client import get  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402

SHORT_US = 200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    repository = tmp_path_factory.mktemp("repository")
    sequences.flags(repository, "direct", "direct { }")
    sequences.flags(repository, "oldest", "oldest { max_candidate_sequences: 2 }")
    sequences.sums(repository, "sums")
    sequences.sums(repository, "from_file", first=100)
    sequences.sums(repository, "short", idle_us=SHORT_US, slots=1)
    with Tessera(repository, "[lanes]\ncount = 2\nshared = true\n") as started:
        yield started.wait_ready()


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Tessera):
    module, address = (thttp, server.http_address) if request.param == "http" else (tgrpc, server.grpc_address)
    with module.InferenceServerClient(address) as opened:
        yield opened, module


def value(module, number: float):
    tensor = module.InferInput("INPUT", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[number]], np.float32))
    return [tensor]


def ask(client, model: str, number: float, sequence: int | str, start: bool = False, end: bool = False):
    opened, module = client
    return opened.infer(
        model, value(module, number), sequence_id=sequence, sequence_start=start, sequence_end=end
    )


def refused(client, *arguments: object, **more: object) -> str:
    with pytest.raises(InferenceServerException) as error:
        ask(client, *arguments, **more)
    return error.value.message()


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_control_inputs_say_where_in_its_sequence_a_request_is(client, model: str) -> None:
    steps = [(True, False), (False, False), (False, True)]
    answers = [ask(client, model, 5, 1234567890123, start, end) for start, end in steps]
    assert [answer.as_numpy("FLAGS").tolist() for answer in answers] == [[[1, 0, 1]], [[0, 0, 1]], [[0, 1, 1]]]
    assert [answer.as_numpy("ID").tolist() for answer in answers] == [[[1234567890123]]] * 3


def test_state_goes_from_one_request_of_a_sequence_to_the_next(client) -> None:
    sums = []
    for step in range(4):
        for sequence in (11, "text"):
            answer = ask(client, "sums", 10 ** step, sequence, start=step == 0, end=step == 3)
            sums.append(answer.as_numpy("OUTPUT")[0, 0])
    assert sums == [1, 1, 11, 11, 111, 111, 1111, 1111]
    assert ask(client, "sums", 5, 11, start=True).as_numpy("OUTPUT")[0, 0] == 5, "a start forgets the state"
    assert ask(client, "sums", 5, 11, start=True, end=True).as_numpy("OUTPUT")[0, 0] == 5


def test_a_state_starts_with_the_elements_of_its_file(client, server: Tessera) -> None:
    for _ in range(2):
        sums = [ask(client, "from_file", 1, 21, start=step == 0, end=step == 2) for step in range(3)]
        assert [answer.as_numpy("OUTPUT")[0, 0] for answer in sums] == [101, 102, 103]


def test_a_file_of_the_wrong_size_is_named(tmp_path: Path) -> None:
    sequences.sums(tmp_path, "sums", first=1)
    (tmp_path / "sums" / "initial_state" / "first").write_bytes(b"12345")
    with Tessera(tmp_path) as started:
        (model,) = started.announced["models"]
        assert "initial_state/first has 5 bytes: expected 4" in model["reason"]


def test_mistakes_have_the_texts_of_triton(client) -> None:
    for model in ("direct", "sums"):
        said = refused(client, model, 1, 99)
        assert said == (
            f"inference request for sequence 99 to model '{model}' must specify the START flag on the first request of the "
            "sequence"
        )
        assert refused(client, model, 1, 0, start=True) == (
            f"inference request to model '{model}' must specify a non-zero or non-empty correlation ID"
        )
    opened, module = client
    tensor = module.InferInput("INPUT", [2, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((2, 1), np.float32))
    with pytest.raises(InferenceServerException) as error:
        opened.infer("sums", [tensor], sequence_id=3, sequence_start=True)
    assert error.value.message() == (
        "inference request to model 'sums' must specify batch-size 1 due to requirements of sequence batcher"
    )


def test_the_tensors_of_the_server_are_not_those_of_clients(server: Tessera, client) -> None:
    metadata = get(f"{server.base_url}/v2/models/sums")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["INPUT"]
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["OUTPUT"]
    opened, module = client
    extra = module.InferInput("SUM_IN", [1, 1], "FP32")
    extra.set_data_from_numpy(np.zeros((1, 1), np.float32))
    with pytest.raises(InferenceServerException, match="SUM_IN"):
        opened.infer("sums", [*value(module, 1), extra], sequence_id=3, sequence_start=True)
    assert "sequence" in get(f"{server.base_url}/v2")["extensions"]


def test_pipelined_requests_of_a_stream_keep_the_order_of_their_sequences(server: Tessera) -> None:
    answers: queue.Queue = queue.Queue()
    steps, names = 40, [f"stream {nth}" for nth in range(4)]
    with tgrpc.InferenceServerClient(server.grpc_address) as opened:
        opened.start_stream(lambda result, error: answers.put((result, error)))
        for step in range(steps):
            for name in names:
                opened.async_stream_infer(
                    "sums",
                    value(tgrpc, 1),
                    request_id=f"{name}/{step}",
                    sequence_id=name,
                    sequence_start=step == 0,
                    sequence_end=step == steps - 1,
                )
        found: dict[str, list[float]] = {name: [0.0] * steps for name in names}
        for _ in range(steps * len(names)):
            result, error = answers.get(timeout=60)
            assert error is None, error
            name, step = result.get_response().id.split("/")
            found[name][int(step)] = result.as_numpy("OUTPUT")[0, 0]
        opened.stop_stream()
    assert found == {name: list(range(1, steps + 1)) for name in names}


def test_concurrent_sequences_share_batches_and_keep_their_own_state(server: Tessera) -> None:
    failures: list[object] = []

    def run(sequence: int) -> None:
        with thttp.InferenceServerClient(server.http_address) as opened:
            total = 0
            for step in range(30):
                total += sequence
                answer = ask((opened, thttp), "sums", sequence, sequence, start=step == 0, end=step == 29)
                if answer.as_numpy("OUTPUT")[0, 0] != total:
                    failures.append((sequence, step, answer.as_numpy("OUTPUT")))

    threads = [threading.Thread(target=run, args=(100 + nth,)) for nth in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_an_idle_sequence_gives_its_slot_to_one_that_waits(server: Tessera) -> None:
    with thttp.InferenceServerClient(server.http_address) as opened:
        client = (opened, thttp)
        ask(client, "short", 1, 1, start=True)
        # The only slot is taken until sequence 1 has been idle for its time.
        assert ask(client, "short", 2, 2, start=True, end=True).as_numpy("OUTPUT")[0, 0] == 2
        assert "must specify the START flag" in refused(client, "short", 1, 1)


def test_an_unload_ends_sequences(server: Tessera) -> None:
    with thttp.InferenceServerClient(server.http_address) as opened:
        client = (opened, thttp)
        ask(client, "oldest", 1, 7, start=True)
        ask(client, "oldest", 1, 8, start=True)
        ended: list[str] = []
        waiter = threading.Thread(target=lambda: ended.append(waits(server)))
        waiter.start()
        until(lambda: server.metric("tessera_requests_in_flight") >= 1, "a sequence waits for a slot")
        opened.unload_model("oldest")
        waiter.join(30)
        assert ended and "the sequence ended" in ended[0]
        opened.load_model("oldest")
        assert "must specify the START flag" in refused(client, "oldest", 1, 7)
        assert ask(client, "oldest", 1, 7, start=True, end=True).as_numpy("OUTPUT")[0, 0] == 1


def waits(server: Tessera) -> str:
    with thttp.InferenceServerClient(server.http_address, network_timeout=30.0, connection_timeout=30.0) as opened:
        return refused((opened, thttp), "oldest", 1, 9, start=True)
