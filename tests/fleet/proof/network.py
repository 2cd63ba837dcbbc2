"""A machine for each node: network namespaces on one bridge. Partitioning a node takes its cable out.

`enter` starts the program again in namespaces of its own for network, mounts and processes, where it has the rights of root. Nothing
outside changes, and the kernel ends every process inside when the first one ends, whatever happened.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BRIDGE = "10.77.0.1"
INSIDE = "TESSERA_PROOF_INSIDE"


def enter(module: str, seconds: float) -> None:
    """Become `python -m module` with this program's arguments in new namespaces, for this time at most. Inside: do nothing."""
    if os.environ.get(INSIDE):
        return
    os.environ[INSIDE] = "1"
    limit = ["timeout", "--foreground", "--kill-after=5", f"{seconds:.0f}"]
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # The shell is the first process: it waits for those whose parents have ended, which Python would not.
    shell = ["bash", "-c", '"$@"; exit $?', "proof", sys.executable, "-m", module, *sys.argv[1:]]
    os.execvp(limit[0], [*limit, *unshare, *shell])


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """A bridge with the address of this side."""

    def __init__(self) -> None:
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "type", "bridge")
        _run("ip", "addr", "add", f"{BRIDGE}/24", "dev", "br0")
        _run("ip", "link", "set", "br0", "up")
        Path("/proc/sys/net/ipv4/conf/br0/route_localnet").write_text("1")
        self._machines = 0

    def offer(self, port: int) -> None:
        """Let machines reach a loopback port of this side at the address of the bridge."""
        wanted = ["-i", "br0", "-p", "tcp", "-d", BRIDGE, "--dport", str(port)]
        _run("iptables", "-t", "nat", "-A", "PREROUTING", *wanted, "-j", "DNAT", "--to", f"127.0.0.1:{port}")

    def add(self, name: str) -> str:
        """A machine with this name; returns its address."""
        self._machines += 1
        address = f"10.77.0.{10 + self._machines}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", f"to-{name}", "master", "br0", "up")
        for command in ("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"):
            _run("ip", "-n", name, *command.split())
        return address

    def prefix(self, name: str) -> tuple[str, ...]:
        """What starts a program on a machine."""
        return ("ip", "netns", "exec", name)

    def connect(self, name: str, connected: bool) -> None:
        """Put the cable of a machine in, or take it out."""
        _run("ip", "link", "set", f"to-{name}", "up" if connected else "down")
