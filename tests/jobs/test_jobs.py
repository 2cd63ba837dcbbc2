"""`tessera job`: rows of a file through a model, in order and once each, across crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from fixtures import models
from fixtures.client import get
from fixtures.keys import new_key
from fixtures.partition import at_idle_priority
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

TESSERA = os.environ["TESSERA_BIN"]
ROWS, WIDTH, CHAIN = 600, 64, 40


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    models.place(folder, "chain", models.matmul_chain(WIDTH, CHAIN))
    echo(1_000, max_batch=4).place(folder, "echo")
    echo(50_000, max_batch=8).place(folder, "slow")
    return folder


def config(tmp_path: Path, more: str = "", max_batch: int = 8) -> str:
    return f"""
        [jobs]
        folder = "{tmp_path}/jobs"
        {more}
        [models.chain]
        class = "best_effort"
        max_batch = {max_batch}
    """


def job(server: Tessera, *arguments: str, code: int = 0, **more: str) -> str:
    """What `tessera job` prints."""
    command = [TESSERA, "job", *arguments, "--server", server.base_url]
    environment = {**os.environ, **more}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == code, (done.returncode, done.stdout[-500:], done.stderr[-1000:])
    return done.stdout if code == 0 else done.stderr


def lines(count: int, seed: int = 7) -> tuple[str, np.ndarray]:
    """Rows for `chain`, and what it answers."""
    rows = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    rotation = numpy_helper.to_array(models.matmul_chain(WIDTH, 1).graph.initializer[0]).astype(np.float64)
    text = "".join(json.dumps({"INPUT0": row.tolist()}) + "\n" for row in rows)
    return text, rows.astype(np.float64) @ np.linalg.matrix_power(rotation, CHAIN)


def results(path: Path) -> np.ndarray:
    return np.array([json.loads(line)["OUTPUT0"] for line in path.read_text().splitlines()])


def test_a_file_becomes_a_file_of_results(repository: Path, tmp_path: Path) -> None:
    text, expected = lines(ROWS)
    (tmp_path / "in.jsonl").write_text(text)
    with Tessera(repository, config(tmp_path)) as server:
        server.wait_ready()
        submit = ["submit", "--model", "chain", "--input", str(tmp_path / "in.jsonl"), "--by", "1h", "--outputs", "OUTPUT0"]
        told = job(server, *submit, "--output", str(tmp_path / "out.jsonl"))
        assert "state      done" in told and f"rows       {ROWS} of {ROWS} done" in told and "(yes)" in told, told
        np.testing.assert_allclose(results(tmp_path / "out.jsonl"), expected, rtol=1e-3, atol=1e-3)
        (listed,) = json.loads(job(server, "list", "--json"))["jobs"]
        assert (listed["state"], listed["rows"], listed["committed"]) == ("done", ROWS, ROWS)
        assert "done" in job(server, "list")
        assert server.metric("tessera_job_rows_total", outcome="answered") == ROWS
        # Several rows run together: 40 rows need less than 40 batches of 50 ms.
        (tmp_path / "short.jsonl").write_text('{"INPUT0": [1, 2, 3, 4]}\n' * 40)
        job(server, "submit", "--model", "slow", "--input", str(tmp_path / "short.jsonl"), "--watch")
        assert 0 < server.metric("tessera_batch_rows_count", model="slow", version="1") < 40
        # A request of the protocol a line, from standard input, answered as the protocol does.
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        rows = json.dumps({"id": "a", "inputs": [tensor]}) + "\n" + json.dumps({"inputs": [{**tensor, "shape": [1, 5], "data": [1] * 5}]})
        piped = subprocess.run(
            [TESSERA, "job", "submit", "--model", "echo", "--input", "-", "--watch", "--server", server.base_url],
            input=rows, text=True, capture_output=True, timeout=60,
        )
        assert piped.returncode == 0, piped
        first, second = [json.loads(line) for line in job(server, "results", "3").splitlines()]
        assert (first["id"], first["outputs"][0]["data"]) == ("a", [1.0, 2.0, 3.0, 4.0])
        assert "INPUT0" in second["error"], second
        told = get(f"{server.base_url}/v2/explain?model=echo&outcome=refused")
        assert any(entry["id"] == "job-3-1" for entry in told["requests"]), told


def test_what_cannot_be_meant_is_refused(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"INPUT0": [1, 2, 3, 4]}\n[1]\n')
    (tmp_path / "good.jsonl").write_text('{"INPUT0": [1, 2, 3, 4]}\n')
    with Tessera(repository, config(tmp_path)) as server:
        server.wait_ready()
        wrong, good = ["--input", str(tmp_path / "in.jsonl")], ["--input", str(tmp_path / "good.jsonl")]
        assert "line 2: expected a JSON object" in job(server, "submit", "--model", "echo", *wrong, code=1)
        assert "model `other`: not found" in job(server, "submit", "--model", "other", *good, code=1)
        told = job(server, "submit", "--model", "echo", *good, "--outputs", "OUTPUT0,other", code=1)
        assert "has no output `other`: expected some of OUTPUT0" in told
        assert "expected a time of day" in job(server, "submit", "--model", "echo", *good, "--by", "soon", code=1)
        assert "No such file" in job(server, "submit", "--model", "echo", "--input", "/nowhere", code=1)
        assert "job 9: not found" in job(server, "show", "9", code=1)
        assert job(server, "list").startswith("no jobs")
    with Tessera(repository) as server:
        server.wait_ready()
        assert "set `jobs.folder`" in job(server, "submit", "--model", "echo", *good, code=1)


def test_a_job_survives_kill_9_with_every_row_once(tmp_path: Path) -> None:
    repository, rows = tmp_path / "repository", tmp_path / "in.jsonl"
    # One row a batch, because rounding depends on the rows of a batch. Some milliseconds each, so that the job outlives several servers.
    models.place(repository, "chain", models.matmul_chain(512, 1_500))
    random = np.random.default_rng(3).standard_normal((700, 512)).astype(np.float32)
    rows.write_text("".join(json.dumps({"INPUT0": row.tolist()}) + "\n" for row in random))

    def killed(folder: Path, kills: int) -> str:
        """Results of a job whose server is killed this often, each time once more results are durable."""
        durable = 0
        for kill in range(kills + 1):
            server = Tessera(repository, config(folder, max_batch=1)).wait_ready()
            if kill == 0:
                job(server, "submit", "--model", "chain", "--input", str(rows))

            def view() -> dict:
                return json.loads(job(server, "show", "1", "--json"))  # noqa: B023

            assert view()["committed"] >= durable, "what was durable stays"
            if kill < kills:
                until(lambda: view()["committed"] > durable, lambda: f"more results are durable: {view()}", 30)  # noqa: B023
                durable = view()["committed"]
                assert view()["state"] == "open", "the job outlives the server"
                server.process.kill()
                assert server.stop() == -signal.SIGKILL
            else:
                job(server, "watch", "1")
                found = job(server, "results", "1")
                assert server.stop() == 0
        return found

    undisturbed, disturbed = killed(tmp_path / "a", 0), killed(tmp_path / "b", 3)
    assert len(undisturbed.splitlines()) == len(random)
    assert disturbed == undisturbed


def test_a_job_survives_the_kill_of_its_workers(tmp_path: Path) -> None:
    repository, rows = tmp_path / "repository", tmp_path / "in.jsonl"
    models.place(repository, "chain", models.matmul_chain(512, 1_500))
    random = np.random.default_rng(3).standard_normal((400, 512)).astype(np.float32)
    rows.write_text("".join(json.dumps({"INPUT0": row.tolist()}) + "\n" for row in random))

    def run(folder: Path, kills: int) -> str:
        settings = config(folder, max_batch=1) + '\n[devices]\nisolation = "process"\n'
        with Tessera(repository, settings) as server:
            server.wait_ready()
            job(server, "submit", "--model", "chain", "--input", str(rows))

            def view() -> dict:
                return json.loads(job(server, "show", "1", "--json"))

            for _ in range(kills):
                durable = view()["committed"]
                until(lambda: view()["committed"] > durable, lambda: f"more results are durable: {view()}", 30)  # noqa: B023
                assert view()["state"] == "open", "the job outlives its workers"
                until(lambda: any(map(at_idle_priority, server.children())), "a worker has idle priority", 30)
                for pid in filter(at_idle_priority, server.children()):
                    os.kill(pid, signal.SIGKILL)
            told = job(server, "watch", "1")
            assert "400 of 400 done, 0 with an error" in told, told
            assert len(server.logged("a lane failed")) >= kills
            return job(server, "results", "1")

    assert run(tmp_path / "a", 2) == run(tmp_path / "b", 0)


def test_jobs_are_of_their_tenant_and_can_be_cancelled(repository: Path, tmp_path: Path) -> None:
    keys, text = {}, ""
    for name, role, tenant in (("a", "infer", "ads"), ("b", "infer", "search"), ("o", "operate", "default")):
        keys[name], line = new_key("--role", role, "--tenant", tenant, "--name", name)
        text += line + "\n"
    (tmp_path / "keys.toml").write_text(text)
    (tmp_path / "keys.toml").chmod(0o600)
    (tmp_path / "in.jsonl").write_text('{"INPUT0": [1, 2, 3, 4]}\n')
    more = "max_jobs = 2\n[tenants.ads]\nweight = 1\n[tenants.search]\nweight = 1\n"
    settings = f'[identity]\nkeys = "{tmp_path}/keys.toml"\n[repository]\nload = "explicit"\n' + config(tmp_path, more)
    with Tessera(repository, settings) as server:
        submit = ["submit", "--model", "echo", "--input", str(tmp_path / "in.jsonl"), "--json"]
        assert json.loads(job(server, *submit, TESSERA_KEY=keys["a"]))["tenant"] == "ads"
        shown = lambda key: [one["id"] for one in json.loads(job(server, "list", "--json", TESSERA_KEY=keys[key]))["jobs"]]  # noqa: E731
        assert (shown("a"), shown("b"), shown("o")) == ([1], [], [1])
        assert "job 1: not found" in job(server, "cancel", "1", code=1, TESSERA_KEY=keys["b"])
        assert "pass --key" in job(server, "list", code=1, TESSERA_KEY="")
        job(server, *submit, TESSERA_KEY=keys["b"])
        assert "2 jobs have not ended" in job(server, *submit, code=1, TESSERA_KEY=keys["a"])
        view = json.loads(job(server, "show", "1", "--json", TESSERA_KEY=keys["o"]))
        assert view["waits_for"] == "model `echo` is not ready", view
        assert json.loads(job(server, "cancel", "1", "--json", TESSERA_KEY=keys["a"]))["state"] == "cancelled"
        assert "job 1 has ended" in job(server, "cancel", "1", code=1, TESSERA_KEY=keys["a"])
        # The other job goes on once its model is loaded.
        load = [TESSERA, "models", "load", "echo", "--server", server.base_url, "--key", keys["o"]]
        subprocess.run(load, check=True, timeout=60, capture_output=True)
        job(server, "watch", "2", TESSERA_KEY=keys["b"])
