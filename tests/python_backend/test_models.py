"""The same `model.py` files on Tessera and on a real Triton: same answers, same errors."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from fixtures.tessera import Tessera
from fixtures.wait import until
from python_backend.conftest import CONFIG, environment
from tritonclient.utils import InferenceServerException


def strings(*elements: str) -> np.ndarray:
    return np.array([[element.encode()] for element in elements], dtype=np.object_)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def dlpack(text: str) -> dict[str, np.ndarray]:
    return {
        "INT": np.arange(6, dtype=np.int64).reshape(2, 3),
        "HALF": np.array([0.5, -2, 3], np.float16),
        "BOOL": np.array([True, False, True]),
        "TEXT": np.array([text.encode()], np.object_),
    }


# Name of the case, model, inputs, and options of `infer`.
CASES = [
    ("add_sub", "add_sub", {"INPUT0": np.ones((2, 4), np.float32), "INPUT1": np.full((2, 4), 3, np.float32)}, {}),
    (
        "add_sub, one output",
        "add_sub",
        {"INPUT0": np.ones((1, 4), np.float32), "INPUT1": np.ones((1, 4), np.float32)},
        {"outputs": ["OUTPUT1"], "request_id": "some id"},
    ),
    ("identity", "identity", {"INPUT0": np.arange(12, dtype=np.float32).reshape(3, 4)}, {}),
    ("identity, large", "identity", {"INPUT0": np.random.default_rng(1).random((4, 200_000), np.float32)}, {}),
    ("identity, empty", "identity", {"INPUT0": np.zeros((1, 0), np.float32)}, {}),
    ("text_clean", "text_clean", {"TEXT": strings("  Größe \t UND  Form ", "", "ﬁne")}, {}),
    ("tokenizer", "tokenizer", {"TEXT": np.array([[b"the quick", b"brown fox"]], dtype=np.object_)}, {}),
    ("image_labels", "image_labels", {"IMAGE": images(3)}, {}),
    ("embedding", "embedding", {"IDS": np.array([[1, 2, 3], [9, 0, 0]], np.int32)}, {}),
    ("embedding, refused", "embedding", {"IDS": np.array([[1, 2, 30]], np.int32)}, {}),
    ("auto_complete", "auto_complete", {"X": np.array([[1, 2, 3]], np.int64)}, {}),
    (
        "request_facts",
        "request_facts",
        {"IN": np.array([1, 2], np.int32)},
        {"request_id": "r 1", "outputs": ["FACTS"], "timeout": 30_000_000, "parameters": {"text": "a", "whole": 3, "flag": True}},
    ),
    ("request_facts, no options", "request_facts", {"IN": np.array([], np.int32)}, {"outputs": ["FACTS"]}),
    ("pipeline", "pipeline", {"A": np.arange(4, dtype=np.float32), "B": np.ones(4, np.float32)}, {}),
    ("asynchronous", "asynchronous", {"A": np.arange(4, dtype=np.float32)}, {}),
    ("threads", "threads", {"A": np.arange(4, dtype=np.float32)}, {}),
    ("dlpack", "dlpack", dlpack("capsules"), {}),
    ("own_environment", "own_environment", {"IN": np.array([b"a"], np.object_)}, {}),
    *(
        (f"errors, {word}", "errors", {"CODE": strings(word)}, {})
        for word in (
            "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
            "plain", "raise", "exception", "nothing", "other name", "other type", "text",
        )
    ),
]  # fmt: skip


def ask(client_module, address: str, model: str, inputs: dict[str, np.ndarray], options: dict) -> tuple:
    """The outputs by name, or the status and message of the error."""
    client = client_module.InferenceServerClient(address)
    sent = []
    for name, array in inputs.items():
        datatype = "BYTES" if array.dtype == np.object_ else np_to_triton(array.dtype)
        sent.append(client_module.InferInput(name, list(array.shape), datatype))
        sent[-1].set_data_from_numpy(array)
    options = dict(options)
    if "outputs" in options:
        options["outputs"] = [client_module.InferRequestedOutput(name) for name in options["outputs"]]
    try:
        result = client.infer(model, sent, **options)
    except InferenceServerException as error:
        return "error", error.status(), error.message()
    finally:
        client.close()
    response = result.get_response()
    names = [output["name"] for output in response["outputs"]] if isinstance(response, dict) else [
        output.name for output in response.outputs
    ]
    return "outputs", {name: result.as_numpy(name).tolist() for name in sorted(names)}


def np_to_triton(dtype: np.dtype) -> str:
    from tritonclient.utils import np_to_triton_dtype

    return np_to_triton_dtype(dtype)


@pytest.mark.parametrize(("model", "inputs", "options"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_answers_are_those_of_triton(tessera, triton, protocol, model, inputs, options):
    def of(server) -> tuple:
        if protocol == "http":
            return ask(httpclient, server.base_url.removeprefix("http://"), model, inputs, options)
        return ask(grpcclient, server.grpc_address, model, inputs, options)

    assert of(tessera) == of(triton)


@pytest.mark.parametrize("model", ["add_sub", "auto_complete", "repeat", "tokenizer"])
def test_metadata_is_that_of_triton(tessera, triton, model):
    ours = httpclient.InferenceServerClient(tessera.http_address).get_model_metadata(model)
    assert ours == httpclient.InferenceServerClient(triton.http_address).get_model_metadata(model)


def test_the_events_of_a_decoupled_model_are_those_of_triton(tessera, triton):
    def events(server):
        url = f"http://{server.http_address}/v2/models/repeat/generate_stream"
        with urllib.request.urlopen(urllib.request.Request(url, b'{"IN": [4, 5, 6]}'), timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line]

    assert events(tessera) == events(triton)


@pytest.mark.parametrize("values", [[4], [99], [], [4, 5], [4, -1], [-2]])
def test_generate_wants_exactly_one_response_as_triton(tessera, triton, values):
    def answer(server):
        url = f"http://{server.http_address}/v2/models/repeat/generate"
        request = urllib.request.Request(url, json.dumps({"IN": values}).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    assert answer(tessera) == answer(triton)


def test_initialize_gets_the_arguments_that_triton_gives(tessera, triton):
    def arguments(server) -> dict:
        address = server.base_url.removeprefix("http://")
        _, outputs = ask(httpclient, address, "request_facts", {"IN": np.array([1], np.int32)}, {})
        given = json.loads(outputs["CONFIG"][0])
        return given | {"model_config": json.loads(given["model_config"])}

    assert arguments(tessera) == arguments(triton)


def test_an_error_fails_only_its_request(tessera):
    words = ["good", "INVALID_ARG", "raise", "better", "nothing"] * 4
    with ThreadPoolExecutor(len(words)) as pool:
        answers = list(
            pool.map(lambda word: ask(grpcclient, tessera.grpc_address, "errors", {"CODE": strings(word)}, {}), words)
        )
    for word, answer in zip(words, answers):
        if word in ("good", "better"):
            assert answer == ("outputs", {"OUT": [[word.encode()]]})
        elif word == "nothing":
            assert answer == ("outputs", {})
        else:
            assert answer[0] == "error"
            assert ("planted failure" if word == "raise" else "planted INVALID_ARG") in answer[2]


def stream(server, values: list[int], empty_final: bool, model: str = "repeat") -> list:
    """The responses to one request, as far as they are the same on every server."""
    client = grpcclient.InferenceServerClient(server.grpc_address)
    responses: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: responses.put((result, error)))
    tensor = grpcclient.InferInput("IN", [len(values)], "INT32")
    tensor.set_data_from_numpy(np.array(values, np.int32))
    client.async_stream_infer(model, [tensor], request_id="r", enable_empty_final_response=empty_final)
    found = []
    # Without empty responses, the end is not announced: a second request with one tells that the first has ended.
    while len(found) < len(values) + empty_final or not found:
        result, error = responses.get(timeout=20)
        if error is not None:
            found.append(("error", error.message().partition("\n\nAt:")[0]))
            break
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        output = result.as_numpy("OUT")
        found.append((response.id, response.model_name, final, None if output is None else output.tolist()))
        if final:
            break
    client.stop_stream()
    client.close()
    assert responses.empty()
    return found


@pytest.mark.parametrize("empty_final", [False, True])
@pytest.mark.parametrize("values", [[4, 5, 6], [7, 99], [-1], [-2]], ids=str)
def test_a_decoupled_model_gives_the_responses_of_triton(tessera, triton, values, empty_final):
    def of(server) -> list:
        # The name of the instance is the server's own.
        return [
            (*one[:1], one[1].replace("repeat_0_0", "repeat_0")) if one[0] == "error" else one
            for one in stream(server, values, empty_final)
        ]

    assert of(tessera) == of(triton)


def test_no_response_means_only_the_end(tessera):
    assert stream(tessera, [], True) == [("r", "repeat", True, None)]


def test_hundreds_of_responses_arrive_in_order(tessera):
    found = stream(tessera, list(range(100, 800)), True)
    assert [one[3] for one in found[:-1]] == [[value] for value in range(100, 800)]
    assert found[-1][2:] == (True, None)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_decoupled_model_refuses_unary_calls_as_triton_does(tessera, triton, protocol):
    def of(server) -> tuple:
        module, address = (
            (httpclient, server.base_url.removeprefix("http://")) if protocol == "http" else (grpcclient, server.grpc_address)
        )
        return ask(module, address, "repeat", {"IN": np.array([1], np.int32)}, {})

    assert of(tessera) == of(triton)


def test_log_and_metrics_reach_the_server(tessera):
    ask(grpcclient, tessera.grpc_address, "logger", {"IN": np.array([b"hello"], np.object_)}, {})
    for message, level in [
        ("info hello", "INFO"),
        ("warning hello", "WARN"),
        ("error hello", "ERROR"),
        ("plain hello", "INFO"),
        ("printed hello", "INFO"),
        ("standard error hello", "INFO"),
    ]:
        until(lambda: tessera.logged(message), lambda: f"`{message}` is logged:\n{tessera.log()[-2000:]}", 10)
        event = tessera.logged(message)[0]
        assert (event["level"], event["model"]) == (level, "logger")
    until(lambda: tessera.metric("logger_requests", model="logger") >= 1, lambda: f"{tessera.metrics()}", 10)


def test_state_is_kept_and_finalize_runs(tessera):
    client = httpclient.InferenceServerClient(tessera.base_url.removeprefix("http://"))
    for add, total in [(3, 3), (4, 7)]:
        answer = ask(
            httpclient, tessera.base_url.removeprefix("http://"), "counter", {"ADD": np.array([add], np.int64)}, {}
        )
        assert answer == ("outputs", {"TOTAL": [total]})
    client.unload_model("counter")
    until(lambda: tessera.logged("finalized at 7"), lambda: tessera.log()[-2000:], 10)
    client.load_model("counter")
    client.close()


def test_a_batch_of_many_requests_is_answered_in_parts(tessera):
    def one(value: int) -> tuple:
        array = np.full((1, 3), value, np.float32)
        return ask(grpcclient, tessera.grpc_address, "identity", {"INPUT0": array}, {})

    with ThreadPoolExecutor(16) as pool:
        for value, answer in enumerate(pool.map(one, range(200))):
            assert answer == ("outputs", {"OUTPUT0": [[float(value)] * 3]})


def test_calls_of_other_models_do_not_block_each_other(tessera):
    def one(value: int) -> tuple:
        inputs = {"A": np.full(4, value, np.float32), "B": np.ones(4, np.float32)}
        return ask(grpcclient, tessera.grpc_address, "pipeline", inputs, {})

    with ThreadPoolExecutor(8) as pool:
        for value, answer in enumerate(pool.map(one, range(40))):
            assert answer == ("outputs", {"TWICE_A": [2.0 * value] * 4})


def test_calls_of_other_models_are_in_their_statistics(tessera, triton):
    inputs = {"A": np.arange(4, dtype=np.float32), "B": np.ones(4, np.float32)}

    def counted(server) -> dict:
        with httpclient.InferenceServerClient(server.http_address) as client:
            (stats,) = client.get_inference_statistics("add_sub")["model_stats"]
        of = stats["inference_stats"]
        counts = {name: int(of[name]["count"]) for name in ("success", "fail", "queue", "compute_infer")}
        batches = {int(row["batch_size"]): int(row["compute_infer"]["count"]) for row in stats["batch_stats"]}
        return counts | {
            "rows": int(stats["inference_count"]),
            "executions": int(stats["execution_count"]),
            "batches": batches.get(1, 0),
        }

    def added(server) -> dict:
        before = counted(server)
        assert ask(httpclient, server.http_address, "pipeline", inputs, {})[0] == "outputs"
        return {name: count - before[name] for name, count in counted(server).items()}

    assert added(tessera) == added(triton)
    assert added(tessera)["success"] == 2


def test_clients_see_that_a_model_is_decoupled(tessera):
    client = httpclient.InferenceServerClient(tessera.http_address)
    assert client.get_model_config("repeat")["model_transaction_policy"] == {"decoupled": True}
    assert not client.get_model_config("identity").get("model_transaction_policy", {}).get("decoupled", False)
    client.close()


def test_arrays_of_numpy_become_tensors_through_dlpack(tessera):
    kind, outputs = ask(grpcclient, tessera.grpc_address, "dlpack", dlpack("arrays"), {})
    assert kind == "outputs"
    assert (outputs["TRANSPOSED"], outputs["TWICE"]) == ([[0, 3], [1, 4], [2, 5]], [1.0, -4.0, 6.0])


def test_calls_from_threads_of_a_model_do_not_wait_for_its_own_lane(repository):
    """With one lane, `add_sub` can run only where its caller runs, so all calls do."""
    models = "".join(f"[models.{name}]\nrun_timeout = \"20s\"\n" for name in ("threads", "asynchronous"))
    with Tessera(repository, f"{CONFIG}\n[lanes]\ncount = 1\n{models}", environment=environment()) as server:
        server.wait_ready(120)

        def one(model: str) -> tuple:
            return ask(grpcclient, server.grpc_address, model, {"A": np.ones(4, np.float32)}, {})

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(one, ["threads", "asynchronous"] * 12))
    for model, (kind, outputs) in zip(["threads", "asynchronous"] * 12, answers):
        assert kind == "outputs"
        sums = [[1.0 + number] * 4 for number in range(8 if model == "threads" else 5)]
        assert outputs["SUMS"] == (sums if model == "threads" else [*sums, [3.0] * 4])


@pytest.mark.parametrize("values", [[4, 5, 6], []], ids=str)
def test_an_asynchronous_decoupled_model_gives_the_responses_of_triton(tessera, triton, values):
    ours = stream(tessera, values, True, "async_repeat")
    assert ours == stream(triton, values, True, "async_repeat")
    assert [one[3] for one in ours[:-1]] == [[2 * value] for value in values]


def test_an_exception_of_an_asynchronous_decoupled_model_ends_its_request(tessera):
    """Triton only logs it: its client waits."""
    first, last = stream(tessera, [7, -1, 8], True, "async_repeat")
    assert first[3] == [14]
    assert last[0] == "error" and "planted failure" in last[1]
