"""The dashboard of a running server in a real Chromium: live figures, explanations, actions, and keys."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixtures.client import Client, get
from fixtures.synthetic import echo
from fixtures.tessera import Tessera
from fixtures.traffic import Clients
from fixtures.wait import until

from pages.chromium import Chromium

MEASURE = (Path(__file__).parent / "measure.js").read_text()
WIDTHS = (390, 1024, 1920)
SIZE, CONTRAST = 10.0, 4.5
LOOKS = "Number(document.documentElement.dataset.looks ?? 0)"
# `slow` is asked for far more than its objective allows, so some of its requests are refused.
CONFIG = """
[lanes]
cores = [[0], [1]]
[partition]
live = true
period = "200ms"
bake_time = "300ms"
[models.quick]
slo = "5s"
[models.slow]
slo = "60ms"
[tenants.search]
weight = 3
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tessera]:
    repository = tmp_path_factory.mktemp("dashboard")
    echo(2_000, 1_000, max_batch=8).place(repository, "quick")
    echo(20_000, 9_000, max_batch=4).place(repository, "slow")
    with Tessera(repository, CONFIG) as running:
        running.wait_ready()
        # Unanswered requests are what the page is for.
        with Clients(running, {"quick": 3}), Clients(running, {"slow": 24}):
            yield running


def shown(browser: Chromium, what: str, holds: Callable[[object], bool], told: str) -> object:
    """Waits until the page shows something."""
    until(lambda: holds(browser.evaluate(what)), lambda: f"{told}, the page has {browser.evaluate(what)!r}; {browser.errors}")
    return browser.evaluate(what)


def text_of(place: str) -> str:
    return f"document.querySelector({json.dumps(place)}).textContent"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_shows_the_server_live_and_can_be_read(
    browser: Chromium, server: Tessera, pictures: Path, width: int, scheme: str
) -> None:
    address = f"http://{server.announced['admin']}/"
    browser.open(address, width, scheme)
    shown(browser, LOOKS, lambda looks: looks >= 3, "three looks arrive")
    shown(browser, text_of("#log"), lambda words: "refused" in str(words) or "late" in str(words), "a request that missed")
    shown(browser, "document.querySelectorAll('#chart rect').length", lambda count: count > 0, "the timeline has seconds")
    browser.screenshot(pictures / f"dashboard-{width}-{scheme}.png")
    models = str(browser.evaluate(text_of("#models")))
    assert models.index("slow") < models.index("quick"), "the model that misses its objective is first"
    assert "1 of 2 models miss their objective: slow" in str(browser.evaluate(text_of("#summary")))
    assert browser.evaluate("document.querySelectorAll('.shares button').length") == len(get(f"{server.base_url}/v2/lanes"))
    seen = browser.evaluate(MEASURE)
    assert isinstance(seen, dict)
    assert browser.errors == []
    assert browser.requested and all(asked.startswith(address) or asked == "data:," for asked in browser.requested), browser.requested
    assert seen["overflow"] <= 0
    assert seen["outside"] == []
    assert [text for text in seen["texts"] if text["size"] < SIZE] == []
    assert [text for text in seen["texts"] if text["contrast"] < CONTRAST] == []
    assert seen["tables"] == 0 and seen["headings"] >= 8
    assert all(drawing["name"] for drawing in seen["drawings"])


@pytest.mark.parametrize("width", WIDTHS)
def test_jobs_and_lanes_of_idle_priority_are_shown(
    browser: Chromium, tmp_path: Path, pictures: Path, width: int
) -> None:
    echo(2_000, max_batch=8).place(tmp_path / "repository", "embedder")
    echo(1_000).place(tmp_path / "repository", "missing")
    config = f"""
        [jobs]
        folder = "{tmp_path}/jobs"
        [models.embedder]
        class = "best_effort"
    """
    with Tessera(tmp_path / "repository", config) as server:
        server.wait_ready()
        Client(server).post("/v2/repository/models/missing/unload", {})
        (tmp_path / "rows.jsonl").write_text('{"INPUT0": [1, 2, 3, 4]}\n' * 200 + '{"other": 1}\n')
        submit = [os.environ["TESSERA_BIN"], "job", "submit", "--server", server.base_url, "--input", str(tmp_path / "rows.jsonl")]
        subprocess.run([*submit, "--model", "embedder", "--watch"], capture_output=True, timeout=60, check=True)
        subprocess.run([*submit, "--model", "missing", "--by", "1s"], capture_output=True, timeout=60, check=True)
        browser.open(f"http://{server.announced['admin']}/", width, "dark")
        words = str(shown(browser, text_of("#jobs-rows"), lambda words: "done" in str(words), "the jobs"))
        assert "1 embedder" in words and "201 of 201" in words and "model `missing` is not ready" in words, words
        assert browser.evaluate("document.getElementById('jobs-link').hidden") is False
        shown(browser, LOOKS, lambda looks: looks >= 1, "a look arrives")
        assert "at idle priority" in str(browser.evaluate(text_of("#shares")))
        ordinary = [lane for lane in get(f"{server.base_url}/v2/lanes") if not lane.get("idle_priority")]
        assert browser.evaluate("Number(document.getElementById('if-lanes').value)") == len(ordinary)
        browser.screenshot(pictures / f"dashboard-jobs-{width}.png")
        seen = browser.evaluate(MEASURE)
        assert isinstance(seen, dict)
        # Gpulets are fixed here, which the page asks for.
        assert all("400 (Bad Request)" in error for error in browser.errors), browser.errors
        assert seen["overflow"] <= 0 and seen["outside"] == []
        assert [text for text in seen["texts"] if text["size"] < SIZE or text["contrast"] < CONTRAST] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_families_show_which_variants_answer(browser: Chromium, tmp_path: Path, pictures: Path, width: int) -> None:
    # 25 and 500 rows a second on the one lane.
    for name, time_us, quality in [("large", 40_000, 0.99), ("small", 2_000, 0.9)]:
        echo(time_us).place(tmp_path, name)
        digest = hashlib.sha256((tmp_path / name / "1" / "model.toml").read_bytes()).hexdigest()
        measured = {"quality": quality, "kind": "accuracy", "rows": 100, "digest": digest}
        (tmp_path / name / "quality.json").write_text(json.dumps(measured))
    config = '[lanes]\ncount = 1\n[families.echo]\nslo = "300ms"\nquality_min = 0.85\nvariants = ["large", "small"]\n'
    with Tessera(tmp_path, config) as server:
        server.wait_ready()
        with Clients(server, {"echo": 16}):
            browser.open(f"http://{server.announced['admin']}/", width, "light")
            words = str(shown(browser, text_of("#family-cards"), lambda words: "Lowered" in str(words), "the level fell"))
            assert "requests get variants up to small (0.9)" in words, words
            assert "at least 0.85 is asked for" in words and "quality 0.99, 1 lane" in words, words
            assert browser.evaluate("document.getElementById('families-link').hidden") is False
            browser.screenshot(pictures / f"dashboard-families-{width}.png")
            seen = browser.evaluate(MEASURE)
            assert isinstance(seen, dict)
            assert seen["overflow"] <= 0 and seen["outside"] == []
            assert [text for text in seen["texts"] if text["size"] < SIZE or text["contrast"] < CONTRAST] == []
            assert all(drawing["name"] for drawing in seen["drawings"])
        shown(browser, text_of("#family-cards"), lambda words: "No answers in the last ten seconds" in str(words), "the clients ended")
        with Clients(server, {"echo": 1}):
            shown(browser, text_of("#family-cards"), lambda words: "Full quality: requests get variants up to large (0.99)" in str(words), "the level rises")


def test_a_missed_request_is_explained(browser: Chromium, server: Tessera, pictures: Path) -> None:
    browser.open(f"http://{server.announced['admin']}/", 1024, "light")
    shown(browser, "document.querySelectorAll('#log button').length", lambda count: count > 0, "a request to choose")
    browser.evaluate("document.querySelector('#log button').click()")
    words = str(shown(browser, text_of("#explanation"), lambda words: "outcome" in str(words), "the explanation"))
    browser.screenshot(pictures / "dashboard-explanation.png")
    assert "model" in words and "slow" in words and "objective" in words and "60 ms" in words
    assert browser.evaluate("document.getElementById('explain').open") is True


def test_the_stages_of_a_pipeline_are_shown_at_every_width(browser: Chromium, tmp_path: Path, pictures: Path) -> None:
    for name in ("first", "second"):
        echo(20_000, 1_000, max_batch=8).place(tmp_path, name)
    config = '[pipelines.both]\nstages = [{ model = "first" }, { model = "second", inputs = { INPUT0 = "first.OUTPUT0" } }]\n'
    with Tessera(tmp_path, config) as server:
        server.wait_ready()
        inputs = get(f"{server.base_url}/v2/models/both")["inputs"]
        tensors = [{"name": one["name"], "datatype": one["datatype"], "shape": [1, *one["shape"][1:]], "data": [0] * 4} for one in inputs]
        status, answer, _ = Client(server).post("/v2/models/both/infer", {"inputs": tensors})
        assert status == 200, answer
        for width in WIDTHS:
            browser.open(f"http://{server.announced['admin']}/", width, "light")
            shown(browser, "document.querySelectorAll('#of-outcome option').length", lambda count: count > 0, "the outcomes to choose from")
            browser.evaluate("const of = document.getElementById('of-outcome'); of.value = 'in_time'; of.dispatchEvent(new Event('change'))")
            shown(browser, "document.querySelectorAll('#log button').length", lambda count: count == 1, "the request")
            browser.evaluate("document.querySelector('#log button').click()")
            rows = "[...document.querySelectorAll('#stages tbody tr')].map((row) => row.textContent)"
            first, second = shown(browser, rows, lambda rows: len(rows) == 2, "the stages")
            assert "first v1" in first and "second v1" in second, (first, second)
            bars = browser.evaluate("[...document.querySelectorAll('#stages .bar i')].map((bar) => [bar.offsetLeft, bar.offsetLeft + bar.offsetWidth])")
            assert bars[0][1] > bars[0][0] and bars[1][0] >= bars[0][1] - 1 and bars[1][1] > bars[1][0], bars
            browser.screenshot(pictures / f"dashboard-stages-{width}.png")
        # Gpulets are fixed here, which the page asks for.
        assert all("400 (Bad Request)" in error for error in browser.errors), browser.errors


def test_an_action_needs_a_confirmation_and_is_carried_out(browser: Chromium, server: Tessera) -> None:
    frozen = lambda: get(f"{server.base_url}/v2/partition")["frozen"]  # noqa: E731
    browser.open(f"http://{server.announced['admin']}/", 1024, "light")
    shown(browser, "document.getElementById('partition-actions').hidden", lambda hidden: hidden is False, "actions on gpulets")
    for action, wanted in (("freeze", True), ("thaw", False)):
        browser.evaluate(f"document.querySelector('[data-action={action}]').click()")
        browser.evaluate("document.querySelector('#confirm button[value=no]').click()")
        assert frozen() is not wanted, "a cancelled action does nothing"
        browser.evaluate(f"document.querySelector('[data-action={action}]').click()")
        browser.evaluate("document.querySelector('#confirm button[value=yes]').click()")
        shown(browser, text_of("#action-result"), lambda words: f"Done: {action}" in str(words), "the result")
        assert frozen() is wanted


def test_what_if_simulates_the_last_hour_with_something_changed(browser: Chromium, server: Tessera, pictures: Path) -> None:
    browser.open(f"http://{server.announced['admin']}/", 1024, "light")
    shown(browser, LOOKS, lambda looks: looks >= 1, "a look arrives")
    browser.evaluate("document.getElementById('if-lanes').value = 16")
    browser.evaluate("document.getElementById('if-load').value = 0.5")
    browser.evaluate("document.getElementById('if-ask').click()")
    shown(browser, text_of("#if-status"), lambda words: "requests of the last" in str(words), "the simulation is done")
    rows = browser.evaluate("[...document.querySelectorAll('#if-rows tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
    assert isinstance(rows, list)
    browser.evaluate("document.getElementById('what-if').scrollIntoView()")
    browser.screenshot(pictures / "dashboard-what-if.png")
    found = {row[0]: [float(cell.removesuffix(" %").replace("–", "nan")) for cell in row[1:4]] for row in rows}
    measured, as_it_is, changed = found["slow"]
    assert set(found) == {"quick", "slow", "all models"} and changed > as_it_is and measured < 90, found
    browser.evaluate("document.getElementById('if-model').value = 'slow'")
    browser.evaluate("document.getElementById('if-objective').value = '1ms'")
    browser.evaluate("document.getElementById('if-ask').click()")
    shown(browser, text_of("#if-status"), lambda words: "objectives.slow: 1ms cannot be met" in str(words), "what is wrong")
    # The browser reports an answer of 400 as an error of the page.
    assert all("400" in error for error in browser.errors), browser.errors


def test_a_canary_is_shown_and_can_be_rolled_back(browser: Chromium, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    for version in (1, 2):
        echo(1_000).place(repository, "calc", version=version)
    with Tessera(repository, "[models.calc.rollout]\n") as server:
        server.wait_ready()
        browser.open(f"http://{server.announced['admin']}/", 1024, "light")
        shown(browser, text_of("#models"), lambda words: "canary" in str(words) and "stable" in str(words), "both versions")
        browser.evaluate("document.getElementById('act-model').value = 'calc'")
        browser.evaluate("document.querySelector('[data-action=rollback]').click()")
        browser.evaluate("document.querySelector('#confirm button[value=yes]').click()")
        shown(browser, text_of("#action-result"), lambda words: "Done: rollback calc" in str(words), "the result")
        shown(browser, text_of("#models"), lambda words: "v1" in str(words) and "v2" not in str(words), "version 1 alone")
        shown(browser, "document.getElementById('rollout-actions').hidden", lambda hidden: hidden is True, "nothing to roll back")


def test_the_page_asks_for_a_key_and_a_reader_may_not_change_anything(browser: Chromium, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    echo(1_000).place(repository, "calc")
    made = subprocess.run(
        [os.environ["TESSERA_BIN"], "key", "new", "--json", "--role", "read"], capture_output=True, text=True, timeout=20, check=True
    )
    key = json.loads(made.stdout)
    keys = tmp_path / "keys"
    keys.write_text(key["line"])
    with Tessera(repository, f'[identity]\nkeys = "{keys}"\n') as server:
        server.wait_ready()
        browser.open(f"http://{server.announced['admin']}/", 1024, "light")
        shown(browser, "document.getElementById('key').open", lambda is_open: is_open is True, "the page asks for a key")
        assert browser.evaluate(text_of("#models")) == "", "nothing is shown before"
        for tried in ("wrong", key["key"]):
            browser.evaluate(f"document.getElementById('key-text').value = {json.dumps(tried)}")
            browser.evaluate("document.querySelector('#key button').click()")
            if tried == "wrong":
                shown(browser, text_of("#key-problem"), lambda words: words != "", "what is wrong with the key")
        shown(browser, text_of("#models"), lambda words: "calc" in str(words), "the model")
        browser.evaluate("document.getElementById('act-model').value = 'calc'")
        browser.evaluate("document.querySelector('[data-action=unload]').click()")
        browser.evaluate("document.querySelector('#confirm button[value=yes]').click()")
        shown(browser, text_of("#action-result"), lambda words: "role" in str(words), "why it is refused")
        assert browser.evaluate("sessionStorage.length") == 1 and browser.evaluate("localStorage.length") == 0
