"""Every mistake in a setting is found, with a message that names it in the words of the file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from check.table import MISTAKES, Mistake

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TESSERA_BIN", str(ROOT / "target" / "release" / "tessera"))
# Words of the program that no file contains.
PROGRAM = re.compile(
    r"\b(struct|variant|u8|u16|u32|u64|usize|i32|i64|f32|f64|nonzero|NonZero|serde|unwrap|panicked|Option|Vec)\b|invalid type|invalid value"
)
CALC = """max_batch = 4
inputs = [{ name = "x", datatype = "FP32", dims = [-1, 2] }]
outputs = [{ name = "y", datatype = "FP32", dims = [-1, 2] }]
time = { alpha_us = 1000 }
"""
SECONDS = 30


def place(mistake: Mistake, folder: Path) -> None:
    digits = folder / "models" / "digits"
    (digits / "1").mkdir(parents=True)
    shutil.copy(ROOT / "models" / "bundled" / "digits" / "1" / "model.onnx", digits / "1")
    if mistake.pbtxt:
        (digits / "config.pbtxt").write_text(mistake.pbtxt)
    (folder / "models" / "calc" / "1").mkdir(parents=True)
    (folder / "models" / "calc" / "1" / "model.toml").write_text(CALC)
    (folder / "tessera.toml").write_text(mistake.toml.replace("{}", str(folder)))
    for name, text in mistake.files.items():
        (folder / name).write_text(text)
    if mistake.command[:1] == ("plan",) and "p.jsonl" not in mistake.files:
        shutil.copy(ROOT / "gpulet" / "core" / "examples" / "igniter-v100.jsonl", folder / "p.jsonl")


def run(mistake: Mistake, folder: Path, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    words = [word.replace("{}", str(folder)) for word in (*command, *mistake.arguments)]
    if command[0] in ("check", "serve"):
        own = {flag for flag in ("--config", "--repository") if flag in words}
        if "--config" not in own:
            words += ["--config", str(folder / "tessera.toml")]
        if "--repository" not in own:
            words += ["--repository", str(folder / "models")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    return subprocess.run(
        [BINARY, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=folder,
        env={**environment, **mistake.environment},
    )


def assert_told(mistake: Mistake, ended: subprocess.CompletedProcess[str]) -> None:
    said = ended.stdout + ended.stderr
    assert ended.returncode == mistake.code, (ended.returncode, said)
    missing = [part for part in mistake.says if part not in said]
    assert not missing, f"{missing} missing in:\n{said}"
    if mistake.code == 2 and mistake.command == ():
        return  # The words of a wrong command line are those of its parser.
    line = next((line for line in said.splitlines() if "error" in line), said)
    shown = PROGRAM.search(line)
    assert not shown, f"`{shown.group()}` is a word of the program:\n{said}"


def test_the_table_is_long_enough() -> None:
    assert len(MISTAKES) >= 120


def test_the_files_of_the_table_are_sound_without_the_mistakes(tmp_path: Path) -> None:
    sound = Mistake(("no errors",), code=0)
    place(sound, tmp_path)
    assert_told(sound, run(sound, tmp_path, ("check",)))


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_told(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    place(mistake, tmp_path)
    assert_told(mistake, run(mistake, tmp_path, mistake.command or ("check",)))


@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.whole])
def test_the_server_does_not_start_with_it(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    place(mistake, tmp_path)
    assert_told(mistake, run(mistake, tmp_path, ("serve",)))
