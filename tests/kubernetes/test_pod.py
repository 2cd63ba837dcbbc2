"""The pod of the chart as real containers: podman plays the kubelet, with the rendered Deployment and ConfigMap.

Ports and probes are left out, because podman would probe with a program that the image does not have."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from chart import NAME, helm, one, render, server_of, workloads
from fixtures.containers import CannotRun, Containers
from fixtures.wait import until
from programs import ROOT, run

CONFIG = '[models.digits]\nslo = "50ms"\n'
LAME_DUCK_SECONDS = 2
NAMES = ("HTTP", "GRPC", "METRICS", "ADMIN")


class Pod:
    """A running pod with one server, on free loopback ports."""

    def __init__(self, containers: Containers, image: str, folder: Path) -> None:
        self._containers, self._file = containers, folder / "pod.yaml"
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in NAMES]
            addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
        self.http, self.metrics = f"http://{addresses[0]}", f"http://{addresses[2]}"
        repository, _, tag = image.rpartition(":")
        server = {"config": CONFIG, "lameDuckSeconds": LAME_DUCK_SECONDS}
        objects = render({"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}, "server": server})
        own = {f"TESSERA_SERVER_{name}": address for name, address in zip(NAMES, addresses)}
        for variable in server_of(objects)["env"]:
            variable["value"] = own.get(variable["name"], variable["value"])
        for key in ("ports", "startupProbe", "livenessProbe", "readinessProbe"):
            del server_of(objects)[key]
        # As podman would start it again, its exit code could not be read.
        workloads(objects)["server"]["restartPolicy"] = "Never"
        played = [one(objects, "ConfigMap", f"{NAME}-config"), one(objects, "Deployment", NAME)]
        self._file.write_text(yaml.safe_dump_all(played))
        containers.podman("kube", "play", "--network", "host", self._file)
        self.container = f"{NAME}-pod-0-server"

    def status(self, path: str) -> int:
        """The status of a GET, or 0 without an answer."""
        try:
            with urllib.request.urlopen(self.http + path, timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def log(self) -> str:
        return self._containers.attempt("logs", self.container).stderr

    def remove(self) -> None:
        self._containers.attempt("kube", "down", self._file)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    if missing := [name for name in ("buildah", "podman", "runc", "catatonit") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("containers")
    found = Containers(folder)
    try:
        found.prove(folder)
    except CannotRun as reason:
        pytest.skip(f"this machine does not run containers: {reason}")
    yield found
    found.remove()


@pytest.fixture(scope="module")
def pod(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    options = ["--binary", os.environ["TESSERA_BIN"], "--tag", "localhost/tessera:tested"]
    image = run(ROOT / "deploy/image/build", *options, seconds=300, **containers.environment).splitlines()[-1]
    running = Pod(containers, image, tmp_path_factory.mktemp("pod"))
    try:
        until(lambda: running.status("/v2/health/ready") == 200, lambda: f"the pod is ready: {running.log()}", 60)
        yield running
    finally:
        running.remove()


def test_a_pod_serves_without_privileges_and_stops_as_promised(pod: Pod, containers: Containers) -> None:
    notes = helm("install", {}, "--dry-run=client").stdout.partition("NOTES:")[2]
    (line,) = [line.strip() for line in notes.splitlines() if line.strip().startswith("curl ")]
    first_request = [word.replace("http://127.0.0.1:8000", pod.http) for word in shlex.split(line)]

    def infer() -> str:
        return subprocess.run(first_request, capture_output=True, text=True, timeout=30, check=True).stdout

    assert '"data":[7]' in infer()
    # The configuration of the ConfigMap is in force.
    with urllib.request.urlopen(f"{pod.metrics}/metrics", timeout=5) as answer:
        assert 'tessera_objective_seconds{model="digits",version="1"} 0.05' in answer.read().decode()

    found = containers.inspect(pod.container)
    assert found["Config"]["User"] == "65532:65532" and found["HostConfig"]["ReadonlyRootfs"]
    status = Path(f"/proc/{found['State']['Pid']}/status").read_text().split()
    values = dict(zip(status, status[1:]))
    assert values["CapEff:"] == "0" * 16 and values["NoNewPrivs:"] == "1" and values["Seccomp:"] == "2"

    # SIGTERM: unready at once, but serving for the lame duck; then the server ends in order.
    containers.podman("kill", "--signal", "TERM", pod.container)
    until(lambda: pod.status("/v2/health/ready") == 400, "the server reports that it is not ready", LAME_DUCK_SECONDS)
    assert pod.status("/v2/health/live") == 200 and '"data":[7]' in infer()
    assert containers.podman("wait", pod.container) == "0", pod.log()
