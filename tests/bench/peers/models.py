"""The models that all servers serve, and one request of each in every client's format."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from fixtures import models as generated
from fixtures import seeded

Row = dict[str, np.ndarray]
TOKENS = 32
SAMPLES = 4
DATATYPES = {"float32": "FP32", "int32": "INT32", "int64": "INT64"}


@dataclass(frozen=True)
class Model:
    """A model in a repository of its own, with requests of one row and the answers of ONNX Runtime alone."""

    name: str
    repository: Path
    rows: list[Row]
    answers: list[Row]
    about: str
    # Whether answers do not depend on what else is in the batch, bit for bit or nearly so.
    rows_apart: bool = True

    @property
    def path(self) -> Path:
        return self.repository / self.name / "1" / "model.onnx"

    def http_binary(self, row: Row) -> tuple[bytes, int]:
        """A body with binary tensors both ways, and the length of its JSON part."""
        inputs = [
            {**tensor, "parameters": {"binary_data_size": row[str(tensor["name"])].nbytes}} for tensor in _heads(row)
        ]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}, separators=(",", ":"))
        return head.encode() + b"".join(array.tobytes() for array in row.values()), len(head)

    def http_json(self, row: Row) -> bytes:
        """A body with everything as JSON."""
        return json.dumps(_request(row), separators=(",", ":")).encode()

    def grpc(self, row: Row) -> bytes:
        """A length-prefixed ModelInferRequest with raw contents."""
        from tritonclient.grpc import service_pb2

        message = service_pb2.ModelInferRequest(model_name=self.name)
        for tensor in _heads(row):
            message.inputs.add(**tensor)
        message.raw_input_contents.extend(array.tobytes() for array in row.values())
        encoded = message.SerializeToString()
        return b"\0" + struct.pack(">I", len(encoded)) + encoded

    def analyzer(self) -> str:
        """The data file of perf_analyzer."""
        steps = [
            {name: {"content": array.ravel().tolist(), "shape": list(array.shape[1:])} for name, array in row.items()}
            for row in self.rows
        ]
        return json.dumps({"data": steps})

    def samples(self) -> str:
        """The samples of `tessera load`: one request a line, with the answer where it is always the same."""
        lines = []
        for row, answer in zip(self.rows, self.answers):
            expect = {"expect": _request(answer)["inputs"]} if self.rows_apart else {}
            lines.append(json.dumps({**_request(row), **expect}, separators=(",", ":")))
        return "\n".join(lines) + "\n"


def _heads(row: Row) -> list[dict[str, object]]:
    return [
        {"name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype.name]}
        for name, array in row.items()
    ]


def _request(row: Row) -> dict[str, list]:
    return {"inputs": [{**tensor, "data": row[str(tensor["name"])].ravel().tolist()} for tensor in _heads(row)]}


def single_threaded(path: Path) -> onnxruntime.InferenceSession:
    """A session with the settings that every server here uses."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _model(folder: Path, name: str, proto: onnx.ModelProto, rows: list[Row], about: str, apart: bool = True) -> Model:
    generated.place(folder / name, name, proto)
    model = Model(name, folder / name, rows, [], about, apart)
    session = single_threaded(model.path)
    outputs = [output.name for output in session.get_outputs()]
    model.answers.extend(dict(zip(outputs, session.run(outputs, row))) for row in rows)
    return model


def _recorded(zoo: Path, name: str) -> list[Row]:
    """The inputs of a model's reference.npz, one row each."""
    with np.load(zoo / name / "reference.npz") as file:
        cases = [(key.split(".", 2)[2], file[key]) for key in sorted(file.files) if ".in." in key]
    return [{tensor: array[i : i + 1]} for tensor, array in cases for i in range(len(array))][:SAMPLES]


def identity(folder: Path, _: Path) -> Model:
    rows = [{"INPUT0": np.arange(16, dtype=np.float32)[None]}]
    return _model(folder, "identity", generated.identity("FP32", ["N", 16]), rows, "OUTPUT0 = INPUT0, f32[N,16]")


def magika(folder: Path, zoo: Path) -> Model:
    proto = onnx.load(zoo / "magika" / "1" / "model.onnx")
    return _model(folder, "magika", proto, _recorded(zoo, "magika"), "file types from 2,048 bytes, i32[N,2048]")


def squeezenet(folder: Path, zoo: Path) -> Model:
    proto = seeded.read(zoo, "squeezenet")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    about = "an image of 602 KB, f32[N,3,224,224]; the architecture in the onnx wheel, seeded weights, batch freed"
    return _model(folder, "squeezenet", proto, _recorded(zoo, "squeezenet"), about)


def minilm(folder: Path, zoo: Path) -> Model:
    proto = onnx.load(zoo / "minilm_int8" / "1" / "model.onnx")
    generator = np.random.default_rng(5)
    names = [value.name for value in proto.graph.input]
    rows = []
    for _ in range(SAMPLES):
        ids = generator.integers(0, 30_000, (1, TOKENS), np.int64)
        fixed = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        rows.append({name: fixed.get(name, ids) for name in names})
    # Dynamic quantisation takes its scale over the whole batch: answers differ a little with the company.
    return _model(
        folder, "minilm_int8", proto, rows, f"sentence embedding, int8, {TOKENS} tokens, 3 x i64[N,{TOKENS}]", False
    )


ALL = {"identity": identity, "magika": magika, "squeezenet": squeezenet, "minilm_int8": minilm}
