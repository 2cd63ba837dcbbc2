"""Changed settings are taken up while the server runs, and mistakes in them change nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fixtures.client import Client, get
from fixtures.settings import Settings
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

ZEROS = [0.0] * 4
SLOW = "[models.slow]\n"


def tool(server: Tessera, *words: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ["TESSERA_BIN"], "models", "--server", server.http_address, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def loads(server: Tessera) -> int:
    """Times that a model became ready, with sessions of its own."""
    return len(server.logged("ready"))


def test_an_objective_changes_without_loading_the_model_again(tmp_path: Path) -> None:
    echo(200_000).place(tmp_path, "slow")
    with Tessera(tmp_path, SLOW + 'slo = "5s"\n') as server:
        server.wait_ready()
        client, settings = Client(server), Settings(server)
        assert client.infer("slow", [ZEROS])[0] == 200
        before = loads(server)
        settings.write(SLOW + 'slo = "50ms"\nqueue_limit = 7\n')
        loaded = tool(server, "load", "slow")
        assert loaded.returncode == 0, loaded.stderr
        assert "slow: slo: 5s -> 50ms" in loaded.stdout and "slow: queue_limit: default -> 7" in loaded.stdout, loaded.stdout
        assert "taken up without loading" in loaded.stdout
        assert loads(server) == before, "the model was loaded again"
        # Some requests run although they seem hopeless, to correct the estimate.
        statuses = {client.infer("slow", [ZEROS])[0] for _ in range(4)}
        assert statuses & {503, 504}, "the old objective is in force"
        assert "nothing changed" in tool(server, "load", "slow").stdout
        settings.write(SLOW)
        settings.hang_up()
        assert client.infer("slow", [ZEROS])[0] == 200
        assert loads(server) == before


def test_settings_of_sessions_load_the_model_again(tmp_path: Path) -> None:
    echo(1_000, max_batch=8).place(tmp_path, "slow")
    with Tessera(tmp_path, "") as server:
        server.wait_ready()
        before = loads(server)
        Settings(server).write(SLOW + "max_batch = 4\n")
        loaded = tool(server, "load", "slow")
        assert "slow: max_batch: default -> 4" in loaded.stdout and "version 1 loaded" in loaded.stdout, loaded.stdout
        assert loads(server) == before + 1
        assert Client(server).infer("slow", [ZEROS] * 5)[0] == 400


def test_config_pbtxt_is_read_again(tmp_path: Path) -> None:
    echo(1_000, max_batch=8).place(tmp_path, "slow")
    written = tmp_path / "slow" / "config.pbtxt"
    written.write_text("max_batch_size: 8\n")
    with Tessera(tmp_path, "") as server:
        server.wait_ready()
        before = loads(server)
        written.write_text("max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 3000 }\n")
        Settings(server).hang_up()
        (event,) = server.logged("settings taken up")
        assert "batching.policy: deadline -> triton" in event["changes"] and "batching.max_delay: 0s -> 3ms" in event["changes"], event
        assert loads(server) == before


def test_a_config_pbtxt_that_appears_loads_nothing_again(tmp_path: Path) -> None:
    echo(1_000, max_batch=8).place(tmp_path, "slow")
    written = tmp_path / "slow" / "config.pbtxt"
    with Tessera(tmp_path, "") as server:
        server.wait_ready()
        before = loads(server)
        written.write_text("max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 3000 }\n")
        Settings(server).hang_up()
        (event,) = server.logged("settings taken up")
        assert "batching.max_delay: 0s -> 3ms" in event["changes"] and "max_batch" not in event["changes"], event
        config = get(f"{server.base_url}/v2/models/slow/config")
        assert int(config["dynamic_batching"]["max_queue_delay_microseconds"]) == 3000, config
        assert loads(server) == before and Client(server).infer("slow", [ZEROS] * 8)[0] == 200
        written.write_text("max_batch_size: 4\n")
        Settings(server).hang_up()
        assert loads(server) == before + 1, "a smaller batch needs new sessions"


@pytest.mark.parametrize("how", ["load", "hang up"])
def test_a_mistake_changes_nothing_and_is_told_with_its_line(tmp_path: Path, how: str) -> None:
    echo(1_000).place(tmp_path, "slow")
    with Tessera(tmp_path, SLOW + 'slo = "5s"\n') as server:
        server.wait_ready()
        client, settings = Client(server), Settings(server)
        settings.write(SLOW + 'slo = "5"\n')
        if how == "load":
            refused = tool(server, "load", "slow")
            assert refused.returncode == 1
            said = refused.stderr
        else:
            settings.hang_up()
            (event,) = server.logged("configuration not reloaded")
            said = event["problem"]
        assert "models.slow.slo: expected a duration such as `50ms`" in said and "tessera.toml:2" in said, said
        assert client.infer("slow", [ZEROS])[0] == 200 and server.is_ready()
        settings.write("[models.slwo]\n" + 'slo = "5s"\n')
        settings.hang_up()
        problems = [event["problem"] for event in server.logged("configuration not reloaded")]
        assert "did you mean `slow`?" in problems[-1], problems
        assert client.infer("slow", [ZEROS])[0] == 200


def test_what_needs_a_restart_is_named_and_the_log_level_does_not(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "slow")
    with Tessera(tmp_path, "") as server:
        server.wait_ready()
        settings = Settings(server)
        settings.write('[limits]\nbody = "32MiB"\n[server]\nlog_level = "debug"\n')
        settings.hang_up()
        named = [event["setting"] for event in server.logged("changed in the configuration: takes effect after a restart")]
        assert named == ["limits.body"]
        assert get(f"{server.base_url}/v2/logging")["log_verbose_level"] == 1


def test_a_hang_up_at_any_time_ends_nothing(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "slow")
    with Tessera(tmp_path, "") as server:
        for _ in range(20):
            server.process.send_signal(signal.SIGHUP)
        server.wait_ready()
        assert Client(server).infer("slow", [ZEROS])[0] == 200


def test_a_leaving_server_is_unready_and_serves_until_the_lame_duck_time_is_over(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "slow")
    with Tessera(tmp_path, '[server]\nlame_duck = "3s"\n') as server:
        server.wait_ready()
        client = Client(server)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not server.is_ready(), "the server is still ready after SIGTERM")
        # A new connection too: load balancers have not noticed yet.
        status, _, headers = Client(server).infer("slow", [ZEROS])
        assert status == 200 and headers["connection"] == "close"
        assert client.infer("slow", [ZEROS])[0] == 200
        # The same signal again, as supervisors send it to the group too. It does not end the drain.
        assert server.process.wait(40) == 0
        assert time.monotonic() - started >= 3


def test_a_second_signal_ends_the_server_at_once_and_a_repeated_one_does_not(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "slow")
    with Tessera(tmp_path, '[server]\nlame_duck = "60s"\n') as server:
        server.wait_ready()
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: bool(server.logged("draining")), "the drain begins")
        assert Client(server).infer("slow", [ZEROS])[0] == 200, "a repeated signal ended the server"
        drain = server.logged("draining")[0]["time"]
        until(lambda: time.time() > drain + 0.2, "the signal is not the same one")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert server.logged("second signal")


@pytest.mark.parametrize("pod", [True, False])
def test_in_a_kubernetes_pod_the_server_leaves_slowly(tmp_path: Path, pod: bool) -> None:
    echo(1_000).place(tmp_path, "slow")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if pod else {}
    with Tessera(tmp_path, "", environment=environment) as server:
        server.wait_ready()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(40) == 0
        (event,) = server.logged("draining")
        assert event["lame_duck"] == ("5s" if pod else "0ns"), event


def test_a_model_that_failed_is_named_once_with_the_reason(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "slow")
    echo(1_000).place(tmp_path, "bad")
    (tmp_path / "bad" / "config.pbtxt").write_text("max_batch: 3\n")
    with Tessera(tmp_path, "") as server:
        rows = [row for row in server.announced["models"] if row["name"] == "bad"]
        assert [row["version"] for row in rows] == ["1"], rows
        assert "max_batch" in rows[0]["reason"]
        listed = tool(server, "list").stdout
        assert listed.count("bad") <= 2 and "not loaded" not in listed, listed
