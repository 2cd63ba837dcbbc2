"""An environment in an archive, as conda-pack makes them: it runs from any folder."""

from __future__ import annotations

import io
import sys
import sysconfig
import tarfile
from pathlib import Path

# As conda-pack's: it finds its own folder. Triton runs it; Tessera starts the interpreter of the folder.
ACTIVATE = """#!/bin/bash
VIRTUAL_ENV="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export VIRTUAL_ENV PATH="$VIRTUAL_ENV/bin:$PATH"
"""
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"lib/python{VERSION}/site-packages"


def write(path: Path, word: str, numpy: Path) -> None:
    """An environment with the module `only_here`, whose `WORD` is this one, and the numpy of a folder of packages."""
    base = Path(sysconfig.get_config_var("BINDIR")) / f"python{VERSION}"
    texts = {
        "bin/activate": ACTIVATE,
        "pyvenv.cfg": f"home = {base.parent}\ninclude-system-site-packages = false\n",
        f"{PACKAGES}/only_here.py": f"WORD = {word!r}\n",
        f"{PACKAGES}/tests.pth": f"{numpy}\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            member.mode = 0o755 if name.startswith("bin/") else 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
        for name in ("python", "python3", f"python{VERSION}"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(base)
            archive.addfile(link)
