#!/usr/bin/env python3
"""Finds the CUDA libraries that ONNX Runtime's provider needs in torch's Python packages.

    python3 find_libraries.py lib/needs

Prints folders for LD_LIBRARY_PATH. If a library is missing, one line on standard error names it and any other version that was
found. In that case the archive was packed for another CUDA version than that of this machine's torch."""

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
    """The text after `.so.`."""
    return re.sub(r".*\.so\.", "", name)


def missing(needs, places):
    """For each missing library, its name and the versions that were found."""
    def there(name):
        return any(os.path.exists(os.path.join(place, name)) for place in places) or loads(name)

    for name in needs:
        if not there(name):
            stem = re.sub(r"\.so\..*", ".so.", name)
            others = sorted({os.path.basename(path) for place in places for path in glob.glob(os.path.join(place, stem + "*"))})
            yield name, others


def complaint(absent):
    name, others = next(((name, others) for name, others in absent if others), absent[0])
    # The version of the runtime library is that of CUDA.
    runtime = next((version(name) for name, _ in absent if name.startswith("libcudart.")), None)
    if others and runtime:
        return (
            f"expected {name}, found {', '.join(others)}: this archive is for CUDA {runtime}, this machine's torch for another "
            f"version: pack again with `--cuda {version(others[0])}`; models will not load"
        )
    names = ", ".join(name for name, _ in absent)
    return f"{names}: not found in Python packages or by the loader: expected those that torch installs; models will not load"


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE, with the name of a library per line")
    needs = pathlib.Path(sys.argv[1]).read_text().split()
    places = folders()
    print(":".join(places))
    inherited = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    absent = list(missing(needs, [*places, *filter(None, inherited)]))
    if absent:
        print(complaint(absent), file=sys.stderr)


if __name__ == "__main__":
    main()
