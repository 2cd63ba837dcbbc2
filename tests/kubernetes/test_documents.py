"""docs/kubernetes.md: its values, commands and claims."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest
import yaml
from chart import SETS, render
from programs import ROOT, program, run
from schemas import check
from test_values import MISTAKES

TEXT = (ROOT / "docs/kubernetes.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.split(":")[0])
def test_values_of_the_guide_are_values_of_the_chart(block: str) -> None:
    objects = render(yaml.safe_load(block))
    for rendered in objects:
        check(rendered)


def test_the_first_command_of_helm_works(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(blocks("yaml")[0])
    (command,) = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("helm template")]
    words = [word.replace("deploy/", f"{ROOT}/deploy/") for word in shlex.split(command)]
    words[words.index("values.yaml")] = str(tmp_path / "values.yaml")
    assert "kind: Deployment" in run(program("helm"), *words[1:])


def test_the_guide_counts_what_the_tests_do() -> None:
    assert f"{len(MISTAKES)} mistakes" in TEXT
    numbers = {6: "six", 7: "seven", 8: "eight"}
    assert f"{numbers[len(SETS)]} sets of values" in TEXT
    assert f"{len(MISTAKES)} mistakes" in (ROOT / "tests/README.md").read_text()
