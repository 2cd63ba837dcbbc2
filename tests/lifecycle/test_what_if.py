"""The server's own traffic through the simulator, as it was and with something changed."""

from __future__ import annotations

import json
from pathlib import Path

from fixtures.client import ask
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until


def what_if(server: Tessera, question: dict) -> tuple[int, dict]:
    return ask(server, "POST", "/v2/what-if", json.dumps(question).encode())


def test_the_last_traffic_is_simulated_as_it_was_and_changed(tmp_path: Path) -> None:
    echo(2_000, 2_000, max_batch=8).place(tmp_path, "busy")
    echo(1_000).place(tmp_path, "idle")
    with Tessera(tmp_path, '[models.busy]\nslo = "40ms"\n') as server:
        server.wait_ready()
        status, refused = what_if(server, {})
        assert status == 503 and "there is nothing to simulate" in refused["error"], refused
        with Clients(server, {"busy": 2}) as clients:
            clients.wait_for(300)
            until(lambda: what_if(server, {})[1].get("requests", 0) >= 300, "the server remembers them")
        _, same = what_if(server, {})
        assert same["as_it_is"] == same["changed"] and [model["name"] for model in same["models"]] == ["busy"]
        (busy,) = same["models"]
        assert abs(busy["measured"] - busy["as_it_is"]["attainment"]) < 0.05, "the simulator finds what was measured"
        _, more = what_if(server, {"load": 20, "lanes": 1})
        assert more["changed"]["lanes"] == 1 and more["changed"]["rate"] > 15 * more["as_it_is"]["rate"]
        assert more["changed"]["attainment"] < 0.9 < more["as_it_is"]["attainment"], more
        _, strict = what_if(server, {"objectives": {"busy": "5ms"}, "policy": "triton"})
        assert strict["models"][0]["changed"]["objective_ms"] == 5 and strict["changed"]["policy"] == "triton"
        for question, problem in [
            ({"objectives": {"busy": "1ms"}}, "objectives.busy: 1ms cannot be met"),
            ({"objectives": {"nope": "1s"}}, "objectives.nope: expected a model with requests"),
            ({"policy": "magic"}, "policy: expected one of deadline"),
            ({"load": 0}, "load: expected more than 0"),
            ({"lanes": 0}, "lanes: expected 1 to"),
            ({"lane": 1}, "unknown field `lane`"),
        ]:
            status, refused = what_if(server, question)
            assert status == 400 and problem in refused["error"], refused
