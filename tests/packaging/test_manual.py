"""The manual pages, written by the server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from programs import need, run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    run(os.environ["TESSERA_BIN"], "reference", "--man", folder)
    return sorted(folder.iterdir())


def test_every_command_has_a_page(pages: list[Path]) -> None:
    listed = run(os.environ["TESSERA_BIN"], "--help").partition("Commands:")[2].partition("\n\n")[0]
    commands = {command for command in re.findall(r"^  (\w+)", listed, re.MULTILINE) if command != "help"}
    names = {page.name for page in pages}
    assert {"tessera.1"} | {f"tessera-{command}.1" for command in commands} <= names
    whole = pages[0].with_name("tessera.1").read_text()
    assert all(f"tessera\\-{command}(1)" in whole for command in commands)


def test_the_pages_have_no_errors_of_layout(pages: list[Path]) -> None:
    need("mandoc", "man")
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, timeout=60)
    # A date would change the pages of every build.
    assert [line for line in lint.stdout.splitlines() if "missing date" not in line] == [], lint.stderr
    for page in pages:
        command = ["man", "--warnings", "--encoding=UTF-8", "--local-file", page]
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert (shown.returncode, shown.stderr) == (0, ""), page.name
        assert "EXAMPLES AND NOTES" in shown.stdout or page.name.count("-") == 2, page.name
