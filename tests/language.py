#!/usr/bin/env python3
"""Checks that the repository uses the words of docs/glossary.md.

    tests/language.py [PATH...]     all tracked files, or those under the given paths

Prints `file:line: found "word": write instead` for every banned word, every one-word rustdoc and every file whose
name a newcomer could not guess, then a count. Exits 0 when nothing was found and 1 otherwise. A legitimate use goes
into ALLOWED with a reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Pattern (whole words, any case) and what to write instead. docs/glossary.md explains each.
BANNED: list[tuple[str, str]] = [
    (r"beside", "next to, co-located with, or with"),
    (r"neighbou?r(s|ing|'s|s')?", "co-located model or gpulet; under contention"),
    (r"rooms?", "headroom, capacity, or space"),
    (r"recall(s|ed|ing)?", "preempt, preemption"),
    (r"(?<!in )turns?(?! (on|off|into|out)\b)", "event, time slice, or lock"),
    (r"anew", "again; repartition"),
    (r"whoever", "the caller, the client, ... (name it)"),
    (r"nobody|no one", "name the subject: no client, no caller"),
    (r"everybody|somebody", "name the subject"),
    (r"thereof|hence|whence|wherein|thereby", "plain modern English"),
    (r"meanwhile", "while X"),
    (r"so many", "a number, or `too many`, or `this many`"),
    (r"(is|are|was|were) none", "does not exist; there is no X"),
    (r"(?<!there )(?<!there’)is no (?!longer\b|more\b)[a-z]+", "is not a X; expected X, got Y"),
    (r"be it", "whether"),
    (r"judges?|judged", "validator, validates"),
    (r"kept sessions?|keeps? sessions?", "warm pool, warm sessions"),
    (r"way back|taken back|takes? back", "rollback, revert"),
    (r"probation", "bake time"),
    (r"giv(e|es|ing)[ _]way", "background priority"),
    (r"gone", "removed, failed, disconnected"),
    (r"lost[ _]lanes?|lane[ _]?lost", "failed lane"),
    (r"by[ _]hand", "manually; operator plan"),
    (r"(its|their|whose) hands", "imperative shell; what carries out the effects"),
    (r"stor(y|ies)", "explanation"),
    (r"desk", "name the data held"),
    (r"homes?", "name the data held; core set"),
    (r"outlook", "forecast; name the data held"),
    (r"patience|patient", "timeout, max wait"),
    (r"courses", "options, candidates"),
    (r"motives?", "reason"),
    (r"made[ _]up", "synthetic, generated"),
    (r"at rest|resting", "idle"),
    (r"giv(e|es|en|ing)[ _]up", "drop (from the queue), shed (at admission), abandon"),
    (r"(re)?cuts?(?! (off|short)\b)|cutting", "partition, repartition, reduce"),
    (r"shan't|shall|ought", "must, should, will"),
    (r"for nothing", "name the cost or the result"),
    (r"of a sudden|at a time when", "plain modern English"),
]
RULES = [(re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", re.IGNORECASE), instead) for pattern, instead in BANNED]

# CamelCase and snake_case identifiers are split into words before the rules apply.
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Code that reads like a banned phrase.
CODE = re.compile(r"\bis_none(?:_or)?\b|\bis None\b|\bis not None\b|\"HOME\"")
ONE_WORD_DOC = re.compile(r"^\s*//[/!] +[A-Za-z-]+\.?\s*$")

FILE_NAMES = re.compile(
    r"^(beside|gone|giving_way|made_up|homes?|story|stories|courses|need|met|worth|desk|looking|look|by_hand|ground"
    r"|outlook|patience|motive|standing|turns?|aside|surroundings|kinds|words|waiting|utils?|helpers?|common|manager)$"
)

SUFFIXES = {".rs", ".md", ".py", ".toml", ".yaml", ".yml", ".sh", ".service", ".proto", ""}
EXCLUDED = (
    "docs/glossary.md",  # lists the words
    "tests/language.py",
    "Cargo.lock",
    "LICENSE",
    "models/oip/proto/",  # the protocol's own files
    "tests/bench/results/",  # recorded output
)
# (path pattern, line pattern, reason)
ALLOWED: list[tuple[str, str, str]] = [
    (r".", r"lost_lane_time", "lane time lost, not a failed lane"),
    (r"\.service$", r"^ProtectHome=", "a systemd directive"),
    (r"archive\.py$", r"^ *\"pyvenv\.cfg\"", "a key of that file"),
    (r"^CHANGELOG\.md$", r"`.*`", "renames name the old words"),
]
ALLOW = [(re.compile(path), re.compile(line), reason) for path, line, reason in ALLOWED]


def tracked(paths: list[str]) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *(paths or ["."])],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    wanted = (name for name in listed if Path(name).suffix in SUFFIXES and not name.startswith(EXCLUDED))
    return [name for name in wanted if (ROOT / name).is_file()]


def findings(name: str) -> list[str]:
    found = []
    if FILE_NAMES.match(Path(name).stem):
        found.append(f"{name}: the name does not say what the file holds")
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    after = ""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if any(path.search(name) and pattern.search(line) for path, pattern, _ in ALLOW):
            after = line
            continue
        words = CAMEL.sub(" ", CODE.sub("", line)).replace("_", " ")
        for pattern, instead in RULES:
            for match in {m.group(0) for m in pattern.finditer(words)}:
                found.append(f'{name}:{number}: found "{match}": write {instead}')
        if name.endswith(".rs") and ONE_WORD_DOC.match(line):
            following = lines[number] if number < len(lines) else ""
            if not after.lstrip().startswith("//") and not following.lstrip().startswith("//"):
                found.append(f"{name}:{number}: a one-word comment says nothing: `{line.strip()}`")
        after = line
    return found


def main() -> int:
    names = tracked(sys.argv[1:])
    found = [line for name in names for line in findings(name)]
    for line in found:
        print(line)
    print(f"language: {len(names)} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
