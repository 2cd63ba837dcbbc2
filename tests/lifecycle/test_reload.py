"""A reload of the configuration is in force as a whole or not at all, and fails no request."""

from __future__ import annotations

from pathlib import Path

from fixtures.client import Client
from fixtures.settings import Settings
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients

ROW = [1.0, 2.0, 3.0, 4.0]
RELOADS = 100


def objective(server: Tessera, model: str) -> float:
    return server.metric("tessera_objective_seconds", model=model)


def test_a_model_that_cannot_be_loaded_leaves_everything_as_it_was(tmp_path: Path) -> None:
    for model in ("first", "second", "third"):
        echo(1_000, max_batch=8).place(tmp_path, model)
    start = '[models.first]\nslo = "5s"\n[models.third]\nslo = "5s"\n'
    with Tessera(tmp_path, start) as server:
        server.wait_ready()
        settings, client = Settings(server), Client(server)
        written = tmp_path / "second" / "config.pbtxt"
        written.write_text("max_batch: 3\n")
        settings.write(start.replace("5s", "4s").replace("[models.third]", "max_batch = 2\n[models.third]"))
        settings.hang_up()
        (event,) = server.logged("configuration not reloaded")
        assert "second" in event["problem"] and "max_batch" in event["problem"], event
        assert objective(server, "first") == objective(server, "third") == 5.0
        for model in ("first", "second", "third"):
            assert client.infer(model, [ROW] * 8)[0] == 200, f"{model} has its old batch size"
        assert server.is_ready()
        assert server.metric("tessera_config_last_reload_successful") == 0
        written.write_text("max_batch_size: 4\n")
        settings.hang_up()
        assert server.metric("tessera_config_last_reload_successful") == 1
        assert server.metric("tessera_config_reload_failures_total") == server.metric("tessera_config_reloads_total") == 1
        (event,) = server.logged("configuration reloaded")
        assert event["models_changed"] == 3 and "models.first.max_batch" in event["settings"], event
        assert objective(server, "first") == objective(server, "third") == 4.0
        assert [client.infer(model, [ROW] * 3)[0] for model in ("first", "second", "third")] == [400, 200, 200]


def test_a_model_that_failed_before_does_not_hold_up_the_others(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "good")
    echo(1_000).place(tmp_path, "bad")
    (tmp_path / "bad" / "config.pbtxt").write_text("max_batch: 3\n")
    with Tessera(tmp_path, "") as server:
        settings = Settings(server)
        settings.write('[models.good]\nslo = "4s"\n')
        settings.hang_up()
        (event,) = server.logged("configuration reloaded")
        assert event["not_loaded"] == 1 and event["models_changed"] == 1, event
        assert objective(server, "good") == 4.0


def test_a_hundred_reloads_under_load_fail_no_request(tmp_path: Path) -> None:
    for model in ("steady", "changing"):
        echo(500, max_batch=8).place(tmp_path, model)
    with Tessera(tmp_path, "") as server:
        server.wait_ready()
        settings = Settings(server)
        with Clients(server, {"steady": 2, "changing": 2}) as clients:
            for number in range(RELOADS):
                settings.write(
                    f'[models.steady]\nslo = "{4 + number % 2}s"\n[models.changing]\nmax_batch = {4 + number % 4}\n'
                    f"[tenants.t{number % 3}]\nweight = {1 + number % 5}\n"
                )
                settings.hang_up()
        assert len(server.logged("configuration reloaded")) == RELOADS
        assert not server.logged("configuration not reloaded")
        statuses = {model: dict(counts) for model, counts in clients.statuses.items()}
        assert all(set(counts) == {200} and counts[200] >= RELOADS for counts in statuses.values()), statuses
        assert clients.wrong == 0 and clients.cut_off == 0
        print(f"\n{RELOADS} reloads, answered: {statuses}")
