"""Sorts the profiles of a file by model and rounds their numbers: `compact.py profile.jsonl > zoo.jsonl`."""

import json
import sys


def rounded(value):
    """A number with five significant digits; whole numbers stay whole."""
    if not isinstance(value, float):
        return value
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short


def main():
    profiles = {}
    for text in open(sys.argv[1], encoding="utf-8"):
        line = json.loads(text)
        if "profile" in line:
            current = {}
            profiles[line["profile"]["model"]] = (line["profile"], current)
            continue
        (kind, body), = line.items()
        key = (kind, body.get("units", 0), body.get("batch", 0), body.get("class", ""))
        current[key] = {kind: {name: rounded(value) for name, value in body.items()}}
    for _, (header, lines) in sorted(profiles.items()):
        print(json.dumps({"profile": header}, separators=(",", ":")))
        for _, line in sorted(lines.items()):
            print(json.dumps(line, separators=(",", ":")))


main()
