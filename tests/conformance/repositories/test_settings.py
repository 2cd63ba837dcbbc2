"""Settings of `config.pbtxt` and `tessera.toml` that change how a model runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.http as thttp
from fixtures import models
from fixtures.graphs import encoder
from fixtures.tessera import Tessera
from fixtures.wait import until
from tritonclient.utils import InferenceServerException

LENGTHS = [5, 6, 7, 8]


def helpers(server: Tessera) -> int:
    """Threads that ONNX Runtime started for its sessions."""
    names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{server.pid}/task").iterdir()]
    return names.count("ort-pool")


def refused(server: Tessera) -> str:
    return " ".join(str(row.get("reason")) for row in server.announced["models"])


def test_thread_counts_are_obeyed_and_a_change_reloads(tmp_path: Path) -> None:
    models.place(tmp_path, "dense", models.dense(64))
    config = tmp_path / "dense" / "config.pbtxt"
    with Tessera(tmp_path, config='[repository]\nengine = "ort"\n[lanes]\ncores = [[0, 1]]\n') as server:
        server.wait_ready()
        # A thread has its name once it runs.
        until(lambda: helpers(server) == 1, "one thread for each core of the lane")
        client = thttp.InferenceServerClient(server.http_address)
        for threads, mode, expected in [("1", "0", 0), ("8", "0", 1), ("1", "1", 1)]:
            config.write_text(
                f'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{threads}" }} }}\n'
                f'parameters {{ key: "execution_mode" value {{ string_value: "{mode}" }} }}\n'
            )
            client.load_model("dense")
            until(lambda wanted=expected: helpers(server) == wanted, lambda: f"{threads}, {mode}: {helpers(server)}")
        assert len(server.logged("ready")) == 4, "every change loaded the model again"
        client.load_model("dense")
        assert len(server.logged("ready")) == 4, "nothing changed"
        client.close()


def test_wrong_settings_are_errors_with_their_place(tmp_path: Path) -> None:
    models.place(tmp_path, "dense", models.dense(64))
    (tmp_path / "dense" / "config.pbtxt").write_text(
        'parameters { key: "enable_mem_arena" value { string_value: "perhaps" } }\n'
        "optimization { graph { level: 7 } execution_accelerators {\n"
        '  gpu_execution_accelerator [ { name: "tensorrt" } ] cpu_execution_accelerator { name: "onednn" } } }\n'
    )
    with Tessera(tmp_path) as server:
        said = refused(server)
        for part in (
            "config.pbtxt:1:19: parameters: `enable_mem_arena`: is `perhaps`: expected 0 or 1",
            "config.pbtxt:2:24: optimization.graph.level: is 7: expected -1",
            "gpu_execution_accelerator.name: is `tensorrt`, which is not supported",
            "cpu_execution_accelerator.name: is `onednn`: expected `openvino`",
        ):
            assert part in said, said


def test_an_accelerator_that_the_library_lacks_is_refused_if_strict(tmp_path: Path) -> None:
    models.place(tmp_path, "dense", models.dense(64))
    (tmp_path / "dense" / "config.pbtxt").write_text(
        'optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "cuda" } ] } }\n'
    )
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with Tessera(tmp_path) as server:
        assert "this ONNX Runtime library has no provider `cuda`: expected one of cpu" in refused(server), refused(server)
    with Tessera(tmp_path, config="[repository]\nstrict = false\n") as server:
        server.wait_ready()
        assert server.logged("`execution_accelerators`: this ONNX Runtime library has no provider `cuda`")


def ask(client: thttp.InferenceServerClient, length: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    ids = np.random.default_rng(length).integers(1, 50, (1, length)).astype(np.int64)
    request = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    tensors = []
    for name, array in request.items():
        tensors.append(thttp.InferInput(name, array.shape, "INT64"))
        tensors[-1].set_data_from_numpy(array)
    return client.infer("encoder", tensors).as_numpy("last_hidden_state"), request


def test_requests_of_unlike_length_share_a_padded_batch(tmp_path: Path) -> None:
    graph = encoder(50, 16, 2, 2, 64, pooled=False)
    models.place(tmp_path, "encoder", graph)
    (tmp_path / "encoder" / "config.pbtxt").write_text(
        "max_batch_size: 8\n"
        "input { name: 'input_ids' data_type: TYPE_INT64 dims: -1 allow_ragged_batch: true }\n"
        "input { name: 'attention_mask' data_type: TYPE_INT64 dims: -1 allow_ragged_batch: true }\n"
    )
    with Tessera(tmp_path) as server:
        assert "allow_ragged_batch: needs padding: set `padding = " in refused(server)
    # The batch waits until it has a row of every request.
    batching = f'batching = {{ policy = "triton", max_delay = "20s", preferred = [{len(LENGTHS)}], padding = "bucket" }}'
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    with Tessera(tmp_path, config=f"[models.encoder]\n{batching}\n") as server:
        server.wait_ready()
        client = thttp.InferenceServerClient(server.http_address, concurrency=len(LENGTHS))
        before = server.metrics()
        with ThreadPoolExecutor(len(LENGTHS)) as pool:
            answers = list(pool.map(lambda length: ask(client, length), LENGTHS))
        after = server.metrics()
        for answer, request in answers:
            (wanted,) = session.run(None, request)
            assert answer.shape == wanted.shape
            np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)
        batches = sum(
            value - before.get(name, 0.0) for name, value in after.items() if name.startswith("tessera_batch_rows_count")
        )
        assert batches == 1, "all lengths ran in one batch"
        client.close()


def test_a_model_that_padding_would_change_is_refused_with_the_difference(tmp_path: Path) -> None:
    models.place(tmp_path, "encoder", encoder(50, 16, 2, 1, 64))
    padding = "{ mask = [], values = { attention_mask = 1 } }"
    with Tessera(tmp_path, config=f"[models.encoder]\nbatching = {{ padding = {padding} }}\n") as server:
        said = refused(server)
        assert "models.encoder.batching.padding: output `sentence_embedding` of a request of length" in said, said
        assert "expected at most 1.00 %" in said, said


def test_warm_up_data_of_a_wrong_size_is_an_error(tmp_path: Path) -> None:
    models.place(tmp_path, "plus", models.plus(1.0))
    (tmp_path / "plus" / "warmup").mkdir()
    (tmp_path / "plus" / "warmup" / "raw").write_bytes(bytes(12))
    config = tmp_path / "plus" / "config.pbtxt"
    config.write_text(
        "max_batch_size: 4\nmodel_warmup { name: 'w' batch_size: 2 count: 3 "
        "inputs { key: 'INPUT0' value { data_type: TYPE_FP32 dims: 4 input_data_file: 'raw' } } }\n"
    )
    with Tessera(tmp_path) as server:
        said = refused(server)
        assert "model_warmup `w`: input `INPUT0`: input_data_file: warmup/raw has 3 elements: expected 4 for one row" in said
        (tmp_path / "plus" / "warmup" / "raw").write_bytes(bytes(16))
        client = thttp.InferenceServerClient(server.http_address)
        client.load_model("plus")
        assert client.is_model_ready("plus")
        client.close()


def test_padding_needs_a_batch(tmp_path: Path) -> None:
    models.place(tmp_path, "fixed", models.identity("FP32", [2, 3]))
    with Tessera(tmp_path, config='[models.fixed]\nbatching = { padding = "bucket" }\n') as server:
        assert "models.fixed.batching.padding: the model is not batched" in refused(server), refused(server)
        client = thttp.InferenceServerClient(server.http_address)
        with pytest.raises(InferenceServerException, match="padding"):
            client.load_model("fixed")
        client.close()
