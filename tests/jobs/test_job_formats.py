"""`tessera job` with files that NumPy and Arrow write, and results that they read."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures import models
from fixtures.tessera import Tessera
from jobs.test_jobs import job

ROWS = 300


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    models.place(folder, "pair", models.add_sub())
    models.place(folder, "halves", models.identity("FP16", ["N", 2, 3]))
    models.place(folder, "text", models.identity("BYTES", ["N", "n"]))
    return folder


@pytest.fixture
def server(repository: Path, tmp_path: Path):  # noqa: ANN201
    with Tessera(repository, f'[jobs]\nfolder = "{tmp_path}/jobs"') as server:
        yield server.wait_ready()


def run(server: Tessera, model: str, given: Path, result: Path, *more: str, code: int = 0) -> str:
    submit = ["submit", "--model", model, "--input", str(given), "--output", str(result)]
    return job(server, *submit, *more, code=code)


def pair(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return tuple(random.integers(-1_000, 1_000, (rows, 16), dtype=np.int32) for _ in range(2))


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_by_name(server: Tessera, tmp_path: Path, compressed: bool) -> None:
    a, b = pair()
    # Larger numbers than the model's, as NumPy makes them by default.
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "in.npz", INPUT0=a.astype(np.int64), INPUT1=b)
    told = run(server, "pair", tmp_path / "in.npz", tmp_path / "out.npz")
    assert f"{ROWS} of {ROWS} done, 0 with an error" in told, told
    with np.load(tmp_path / "out.npz") as results:
        assert sorted(results.files) == ["OUTPUT0", "OUTPUT1"]
        np.testing.assert_array_equal(results["OUTPUT0"], a + b)
        np.testing.assert_array_equal(results["OUTPUT1"], a - b)
        assert results["OUTPUT0"].dtype == np.int32
    run(server, "pair", tmp_path / "in.npz", tmp_path / "sum.npy", "--outputs", "OUTPUT0")
    np.testing.assert_array_equal(np.load(tmp_path / "sum.npy"), a + b)


def test_one_array(server: Tessera, tmp_path: Path) -> None:
    rows = np.random.default_rng(6).standard_normal((ROWS, 2, 3))
    np.save(tmp_path / "in.npy", rows)
    run(server, "halves", tmp_path / "in.npy", tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, rows.astype(np.float16))


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "lz4", "none"])
def test_columns(server: Tessera, tmp_path: Path, compression: str) -> None:
    a, b = pair()
    table = pa.table({"INPUT0": list(a), "INPUT1": pa.FixedSizeListArray.from_arrays(b.ravel(), 16)})
    pq.write_table(table, tmp_path / "in.parquet", compression=compression, row_group_size=70)
    run(server, "pair", tmp_path / "in.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["OUTPUT0", "OUTPUT1", "error"]
    assert found.schema.field("OUTPUT0").type == pa.list_(pa.field("element", pa.int32(), nullable=False))
    np.testing.assert_array_equal(np.stack(found["OUTPUT0"].to_numpy()), a + b)
    np.testing.assert_array_equal(np.stack(found["OUTPUT1"].to_numpy()), a - b)
    assert found["error"].null_count == ROWS


def test_texts_and_rows_with_mistakes(server: Tessera, tmp_path: Path) -> None:
    rows = [["a", "é"], None, [], ["c"]] * 3
    pq.write_table(pa.table({"INPUT0": rows}), tmp_path / "in.parquet")
    told = run(server, "text", tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert "12 of 12 done, 3 with an error" in told, told
    found = pq.read_table(tmp_path / "out.parquet")
    assert [row or None for row in found["OUTPUT0"].to_pylist()] == [row or None for row in rows]
    errors = found["error"].to_pylist()
    assert all(("INPUT0" in error) if row is None else (error is None) for row, error in zip(rows, errors, strict=True)), errors
    # The same as JSON lines, and numbers of any format as JSON lines.
    run(server, "text", tmp_path / "in.parquet", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[0]["OUTPUT0"] == ["a", "é"] and "INPUT0" in lines[1]["error"], lines
    # NumPy has no place for the error.
    told = run(server, "text", tmp_path / "in.parquet", tmp_path / "out.npy", code=1)
    assert "row 0: output `OUTPUT0` is text" in job(server, "show", "3"), told


def test_files_that_do_not_fit_say_why(server: Tessera, tmp_path: Path) -> None:
    numbers = itertools.count()

    def refused(model: str, *more: str, **arrays: np.ndarray) -> str:
        given = tmp_path / f"{next(numbers)}.npz"
        np.savez(given, **arrays)
        return run(server, model, given, tmp_path / "out.npz", *more, code=1)

    a, b = pair(3)
    assert "array `INPUT1` has 2 rows, and array `INPUT0` 3" in refused("pair", INPUT0=a, INPUT1=b[:2])
    assert "Fortran order" in refused("pair", INPUT0=np.asfortranarray(a), INPUT1=b)
    assert "a.astype('<i4')" in refused("pair", INPUT0=a.astype(">i4"), INPUT1=b)
    assert "dtype `|O`" in refused("pair", INPUT0=np.array([None, 1, 2], dtype=object))
    np.save(tmp_path / "one.npy", a)
    told = run(server, "pair", tmp_path / "one.npy", tmp_path / "out.npy", code=1)
    assert "has the outputs OUTPUT0, OUTPUT1, and results in npy are one array" in told
    pq.write_table(pa.table({"INPUT0": pa.array([1, 2], pa.timestamp("us"))}), tmp_path / "time.parquet")
    told = run(server, "pair", tmp_path / "time.parquet", tmp_path / "out.parquet", code=1)
    assert "column `INPUT0`: has values of type TIMESTAMP_MICROS: expected numbers" in told
    (tmp_path / "in.csv").write_text("a,b\n")
    assert "line 1: expected a JSON object" in run(server, "pair", tmp_path / "in.csv", tmp_path / "out.jsonl", code=1)
    assert job(server, "list").startswith("no jobs")
    # What only the model can tell is in the results.
    run(server, "pair", tmp_path / "one.npy", tmp_path / "out.jsonl")
    assert "name the arrays in an .npz file" in (tmp_path / "out.jsonl").read_text()
    np.savez(tmp_path / "wide.npz", INPUT0=a.astype(np.float64), INPUT1=b[:, :7], INPUT2=b)
    run(server, "pair", tmp_path / "wide.npz", tmp_path / "out.jsonl")
    assert "input `INPUT0`: is FP64, and the model's is INT32" in (tmp_path / "out.jsonl").read_text()
    told = job(server, "results", "1", "--output", str(tmp_path / "out.npy"), code=1)
    assert "the results of job 1 are jsonl, not npy" in told
