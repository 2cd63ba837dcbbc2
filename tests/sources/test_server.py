"""`tessera` with a repository on an S3 protocol server: starts, takes up new versions, and outlives its source."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.client import Client  # noqa: E402
from fixtures.synthetic import echo  # noqa: E402
from fixtures.tessera import Tessera  # noqa: E402
from fixtures.wait import until  # noqa: E402
from sources.bucket import BUCKET, SECRET, Source, environment  # noqa: E402

URL = f"s3://{BUCKET}/prod"
ROW = [[1.0, 2.0, 3.0, 4.0]]


def upload(source: Source, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            source.put(str(path.relative_to(folder)), path.read_bytes())


def config(source: Source) -> str:
    return (
        f'[repository]\npath = "{URL}"\ncache = "{source.cache}"\n'
        f'options = {{ endpoint = "http://127.0.0.1:{source.proxy.port}", allow_http = "true", region = "us-east-1" }}\n'
    )


def serve(source: Source, secret: str = SECRET) -> Tessera:
    return Tessera(URL, config(source), environment=environment(secret))  # type: ignore[arg-type]


def metric(server: Tessera, name: str) -> float:
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{name} ")))


def load(server: Tessera, model: str) -> tuple[int, str]:
    asked = urllib.request.Request(f"{server.base_url}/v2/repository/models/{model}/load", b"{}")
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_new_version_in_the_bucket_is_served_after_a_load(source: Source, tmp_path: Path) -> None:
    echo(1_000).place(tmp_path / "models", "m")
    upload(source, tmp_path / "models")
    with serve(source) as server:
        server.wait_ready()
        assert Client(server).infer("m", ROW)[0] == 200
        source.proxy.reset()
        echo(1_000).place(tmp_path / "more", "added")
        upload(source, tmp_path / "more")
        assert load(server, "added")[0] == 200
        assert Client(server).infer("added", ROW)[0] == 200
        assert all("added" in path for _, path, _ in source.proxy.gets()), "only what is new is downloaded"
        source.put("m/1/model.toml", (tmp_path / "models/m/1/model.toml").read_bytes().replace(b"1000", b"1500"))
        assert load(server, "m")[0] == 200
        assert Client(server).infer("m", ROW)[0] == 200
        assert metric(server, "tessera_repository_refresh_failures_total") == 0
        assert metric(server, "tessera_repository_listed_seconds") > 1e9


def test_a_source_that_cannot_be_reached_stops_no_request_and_no_start(source: Source, tmp_path: Path) -> None:
    echo(1_000).place(tmp_path / "models", "m")
    upload(source, tmp_path / "models")
    with serve(source) as server:
        server.wait_ready()
        source.proxy.stop()
        assert Client(server).infer("m", ROW)[0] == 200
        code, told = load(server, "m")
        assert code >= 400 and URL in told and SECRET not in told, told
        assert Client(server).infer("m", ROW)[0] == 200
        assert metric(server, "tessera_repository_refresh_failures_total") == 1
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: server.logged("models are reloaded from the local copy"), lambda: server.log(), 120)
        assert Client(server).infer("m", ROW)[0] == 200
    with serve(source) as server:
        server.wait_ready()
        assert Client(server).infer("m", ROW)[0] == 200
        assert server.logged("the local copy of the model repository is used")
        assert metric(server, "tessera_repository_refresh_failures_total") == 1
        assert SECRET not in server.log()


def test_check_reads_the_bucket_and_mistakes_name_their_setting(source: Source, tmp_path: Path) -> None:
    echo(1_000).place(tmp_path / "models", "m")
    upload(source, tmp_path / "models")
    file = tmp_path / "tessera.toml"

    def check(text: str) -> tuple[int, str]:
        file.write_text(text)
        command = [os.environ["TESSERA_BIN"], "check", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(SECRET))
        return done.returncode, done.stdout + done.stderr

    code, told = check(config(source))
    assert code == 0, told
    for text, key in (
        (f'[repository]\npath = "{URL}"\n', "repository.cache"),
        ('[repository]\npath = "ftp://models"\ncache = "/tmp/cache"\n', "repository.path"),
        (config(source).replace("region", "regoin"), "repository.options"),
        (config(source).replace('region = "us-east-1"', f'secret_access_key = "{SECRET}"'), "repository.options"),
        ('[repository]\noptions = { region = "us-east-1" }\n', "repository.options"),
    ):
        code, told = check(text)
        assert code == 1 and key in told and SECRET not in told, told
