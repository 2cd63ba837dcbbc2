"""`sequence_batching` in Tessera and in a real Triton: what the model is told, and the texts of mistakes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures import sequences  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from oracle.triton import CannotRun, Triton  # noqa: E402

MODELS = ("direct", "oldest")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tessera, Triton]]:
    repository = tmp_path_factory.mktemp("repository")
    sequences.flags(repository, "direct", "direct { }")
    sequences.flags(repository, "oldest", "oldest { max_candidate_sequences: 2 }")
    try:
        triton = Triton.on_free_ports(Path(os.environ["ORACLE_VENV"]), repository)
    except CannotRun as reason:
        pytest.skip(f"no Triton here: {reason}")
    with triton, Tessera(repository, "[lanes]\ncount = 1\n") as tessera:
        tessera.wait_ready()
        triton.wait_ready()
        yield tessera, triton


def ask(module, client, model: str, rows: int, **parameters: object) -> object:
    """The outputs as lists, or the text of the error."""
    tensor = module.InferInput("INPUT", [rows, 1], "FP32")
    tensor.set_data_from_numpy(np.full((rows, 1), 7, np.float32))
    try:
        answer = client.infer(model, [tensor], **parameters)
    except InferenceServerException as error:
        return error.message()
    return {name: answer.as_numpy(name).tolist() for name in ("OUTPUT", "FLAGS", "ID")}


def steps() -> list[dict[str, object]]:
    def step(sequence: object, start: bool = False, end: bool = False, rows: int = 1) -> dict[str, object]:
        return {"sequence_id": sequence, "sequence_start": start, "sequence_end": end, "rows": rows}

    return [
        step(5, start=True),
        step(5),
        step(6, start=True, end=True),
        step(5, end=True),
        # After its end, before its start, without an id, and with two rows.
        step(5),
        step(77),
        step(0, start=True),
        step(8, start=True, rows=2),
        # A second start.
        step(9, start=True),
        step(9, start=True),
        step(9, end=True),
    ]


@pytest.mark.parametrize("module", [thttp, tgrpc], ids=["http", "grpc"])
@pytest.mark.parametrize("model", MODELS)
def test_both_tell_the_model_the_same_and_refuse_the_same(servers: tuple[Tessera, Triton], model: str, module) -> None:
    answers = []
    for server in servers:
        address = server.http_address if module is thttp else server.grpc_address
        with module.InferenceServerClient(address) as client:
            answers.append([ask(module, client, model, step.pop("rows"), **step) for step in steps()])
    ours, theirs = answers
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert our == their, number
