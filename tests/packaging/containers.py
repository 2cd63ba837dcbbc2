"""Containers of podman and runc, with settings that also work inside another container."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tarfile
from pathlib import Path

from programs import run

# Debian's crun fails where cgroups of version 1 and 2 are both mounted. Limits may not exceed those of this process.
SETTINGS = """
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
netns = "host"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


class CannotRun(Exception):
    """This machine does not run containers; says why."""


class Containers:
    """Images and containers in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        (folder / "containers.conf").write_text(SETTINGS.format(files=min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)))
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        self.environment = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def podman(self, *arguments: str | Path) -> str:
        return run("podman", *arguments, **self.environment).strip()

    def attempt(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """A command that may fail."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=60, env=environment)

    def prove(self, folder: Path) -> None:
        """Runs a container with `true` and its libraries.

        A failure is that of the machine, not of the image.
        """
        program = Path("/bin/true")
        libraries = [Path(word) for word in run("ldd", program).split() if word.startswith("/")]
        with tarfile.open(folder / "true.tar", "w") as archive:
            for file in [program, *libraries]:
                archive.add(file.resolve(), arcname=str(file))
        steps = (("import", folder / "true.tar", "proof"), ("run", "--rm", "--read-only", "--user", "65532", "proof", program))
        for step in steps:
            done = self.attempt(*step)
            if done.returncode != 0:
                raise CannotRun(f"podman {step[0]}: {done.stderr.strip().splitlines()[-1:]}")

    def inspect(self, container: str) -> dict:
        return json.loads(self.podman("container", "inspect", container))[0]

    def remove(self) -> None:
        """Ends and removes the containers and images of this folder."""
        self.podman("rm", "--all", "--force", "--time", "0")
        self.podman("rmi", "--all", "--force")
