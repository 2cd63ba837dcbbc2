#!/usr/bin/env python3
"""Finds the CUDA libraries that ONNX Runtime's provider needs: those of torch, which are Python packages.

    python3 find_libraries.py lib/needs

Prints folders for LD_LIBRARY_PATH. Where a library is missing one line on standard error says which, and whether it is there
in another version: then the archive was packed for another CUDA than this machine's torch brings."""

import ctypes
import glob
import os
import pathlib
import re
import site
import sys
import sysconfig


def folders():
    roots = [sysconfig.get_paths()["purelib"], *site.getsitepackages(), site.getusersitepackages()]
    found = [folder for root in roots for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))]
    return list(dict.fromkeys(found))


def loads(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def version(name):
    """The number after `.so.`, as a word."""
    return re.sub(r".*\.so\.", "", name)


def missing(needs, places):
    """For each library that is not there, its name and the versions of it that are."""
    def there(name):
        return any(os.path.exists(os.path.join(place, name)) for place in places) or loads(name)

    for name in needs:
        if not there(name):
            stem = re.sub(r"\.so\..*", ".so.", name)
            others = sorted({os.path.basename(path) for place in places for path in glob.glob(os.path.join(place, stem + "*"))})
            yield name, others


def complaint(absent):
    name, others = next(((name, others) for name, others in absent if others), absent[0])
    # The runtime library has the number of CUDA itself.
    runtime = next((version(name) for name, _ in absent if name.startswith("libcudart.")), None)
    if others and runtime:
        return (
            f"{name} was not found, {', '.join(others)} was: this archive is for CUDA {runtime} and this machine's torch brings "
            f"another: pack again with `--cuda {version(others[0])}`; models will not load"
        )
    names = ", ".join(name for name, _ in absent)
    return f"{names}: not found in Python packages or by the loader: expected those that torch brings; models will not load"


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE, with the name of a library a line")
    needs = pathlib.Path(sys.argv[1]).read_text().split()
    places = folders()
    print(":".join(places))
    beside = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    absent = list(missing(needs, [*places, *filter(None, beside)]))
    if absent:
        print(complaint(absent), file=sys.stderr)


if __name__ == "__main__":
    main()
