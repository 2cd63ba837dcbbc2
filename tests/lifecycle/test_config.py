"""What is in force can be read, what a reload would change can be asked, and a changed file can be watched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fixtures.client import ask
from fixtures.settings import Settings
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.wait import until

CONFIG = "/v2/config"
START = '[limits]\nqueue = 7\n[models.m]\nslo = "5s"\n'


def objective(server: Tessera) -> float:
    return server.metric("tessera_objective_seconds", model="m")


def setting(view: dict, path: str) -> dict:
    (found,) = [one for one in view["settings"] if one["setting"] == path]
    return found


def test_settings_in_force_and_the_last_reload_can_be_read(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    with Tessera(tmp_path, START) as server:
        settings = Settings(server)
        _, view = ask(server, "GET", CONFIG)
        assert view["file"] == str(settings.path) and view["pending"] == [] and view["last_reload"] is None
        assert setting(view, "limits.queue") == {
            "setting": "limits.queue",
            "value": 7,
            "origin": f"file {settings.path}:2",
            "takes_effect": "restart",
        }
        assert setting(view, "server.http")["origin"] == "flag --http"
        assert setting(view, "models.m.slo")["value"] == "5s"

        settings.write(START.replace("7", "8").replace("5s", "4s"))
        status, report = ask(server, "POST", CONFIG)
        slo = {"setting": "models.m.slo", "old": "5s", "new": "4s", "takes_effect": "reload"}
        queue = {"setting": "limits.queue", "old": 7, "new": 8, "takes_effect": "restart"}
        assert (status, report["changes"], report["pending"]) == (200, [slo], [queue])
        assert report["models"]["m"]["changes"] and objective(server) == 4.0
        _, view = ask(server, "GET", CONFIG)
        assert view["pending"] == [queue] and view["last_reload"]["successful"]
        assert (setting(view, "limits.queue")["value"], setting(view, "models.m.slo")["value"]) == (7, "4s")

        settings.write(START.replace('"5s"', '"soon"'))
        status, refused = ask(server, "POST", CONFIG)
        assert status == 500 and "models.m.slo" in refused["error"], refused
        _, view = ask(server, "GET", CONFIG)
        assert not view["last_reload"]["successful"] and "models.m.slo" in view["last_reload"]["problem"]
        assert setting(view, "models.m.slo")["value"] == "4s" and objective(server) == 4.0
        assert [event["path"] for event in server.logged("change requested")] == ["/v2/config"] * 2


def test_a_dry_run_answers_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    with Tessera(tmp_path, START) as server:
        dry_run = "/v2/config?dry_run=true"
        assert ask(server, "POST", dry_run) == (200, {"changes": [], "pending": []})
        sent = b'[limits]\nqueue = 7\n[models.m]\nslo = "3s"\n[tenants.t]\nweight = 2\n'
        status, preview = ask(server, "POST", dry_run, sent)
        changes = [(change["setting"], change["old"], change["new"]) for change in preview["changes"]]
        assert (status, changes) == (200, [("models.m.slo", "5s", "3s"), ("tenants.t.weight", None, 2)])
        wrong = b'[limits]\nqueue = "many"\n[models.n]\nslo = "soon"\n'
        status, refused = ask(server, "POST", dry_run, wrong)
        assert status == 400, refused
        assert "limits.queue" in refused["error"] and "models.n.slo" in refused["error"], "all mistakes at once"
        assert ask(server, "POST", dry_run, b"\xff")[0] == 400
        assert ask(server, "POST", "/v2/config?dry-run=true", sent)[0] == 400
        status, refused = ask(server, "POST", "/v2/config", sent)
        assert status != 200 and "dry_run=true" in refused["error"], refused
        assert objective(server) == 5.0 and server.metric("tessera_config_reloads_total") == 0
        assert server.metric("tessera_config_last_reload_successful") == 1


def swap(link: Path, target: str) -> None:
    """Replace a symbolic link in one step, as Kubernetes does."""
    new = link.with_name(f"{link.name}.new")
    new.symlink_to(target)
    os.replace(new, link)


def test_a_watched_file_is_taken_up_when_kubernetes_swaps_it(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    start = f"[server]\nwatch_config = true\n{START}"
    with Tessera(tmp_path, start) as server:
        path = Settings(server).path
        folder = path.parent

        def version(name: str, text: str) -> None:
            (folder / name).mkdir()
            (folder / name / path.name).write_text(text)
            swap(folder / "..data", name)

        def reloads(accepted: int, refused: int) -> None:
            counts = {"tessera_config_reloads_total": accepted, "tessera_config_reload_failures_total": refused}
            until(
                lambda: all(server.metric(name) == count for name, count in counts.items()),
                lambda: f"{counts}:\n{server.log()[-2000:]}",
            )

        version("1", start)
        swap(path, f"..data/{path.name}")
        version("2", start.replace("5s", "4s"))
        reloads(1, 0)
        assert objective(server) == 4.0
        version("3", start.replace('"5s"', '"soon"'))
        reloads(1, 1)
        assert objective(server) == 4.0
        path.unlink()
        reloads(1, 2)
        assert "cannot read" in ask(server, "GET", CONFIG)[1]["last_reload"]["problem"]
        swap(path, f"..data/{path.name}")
        reloads(1, 3)
        version("4", start.replace("5s", "3s"))
        reloads(2, 3)
        assert objective(server) == 3.0


def test_the_command_shows_compares_and_reloads(tmp_path: Path) -> None:
    echo(1_000).place(tmp_path, "m")
    with Tessera(tmp_path, START) as server:

        def config(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [os.environ["TESSERA_BIN"], "config", "--server", server.announced["admin"], *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=60)

        shown = config("show").stdout
        assert "limits.queue" in shown and "limits.body" not in shown, shown
        assert "64MiB" in config("show", "limits.body").stdout
        new = tmp_path.parent / "new.toml"
        new.write_text(START.replace("7", "9").replace("5s", "2s"))
        compared = config("diff", str(new)).stdout
        assert "models.m.slo" in compared and "after a restart" in compared and objective(server) == 5.0, compared
        assert config("diff").stdout == "no setting would change\n"
        Settings(server).write(new.read_text())
        reloaded = config("reload").stdout
        assert '"2s"' in reloaded and objective(server) == 2.0, reloaded
        assert "limits.queue" in config("show").stdout.split("after a restart")[1]
        new.write_text("[limits]\nqueue = 0\n")
        refused = config("diff", str(new))
        assert refused.returncode == 1 and "limits.queue" in refused.stderr, refused
