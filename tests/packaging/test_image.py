"""The container image: what is in it, and that it serves without privileges."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conftest import Image
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from fixtures.client import get
from fixtures.synthetic import echo
from fixtures.wait import until
from programs import ROOT

BYTES_MAX = 100_000_000
# Requests on one lane: together longer than podman takes to send a signal.
REQUESTS, SLOW_US = 4, 500_000


@dataclass
class Server:
    """A server in a container, and how long it took to be ready."""

    image: Image
    container: str
    url: str
    metrics: str

    def in_flight(self) -> int:
        with urllib.request.urlopen(self.metrics, timeout=5) as answer:
            found = re.search(r"^tessera_requests_in_flight (\d+)$", answer.read().decode(), re.MULTILINE)
        return int(found[1]) if found else 0

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v2/health/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def infer(self, model: str, body: bytes) -> dict:
        request = urllib.request.Request(f"{self.url}/v2/models/{model}/infer", body)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def log(self) -> str:
        return self.image.containers.attempt("logs", self.container).stderr

    def terminate(self) -> None:
        self.image.containers.podman("kill", "--signal", "TERM", self.container)

    def exit_code(self) -> int:
        return int(self.image.containers.podman("wait", self.container))


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@contextmanager
def serving(image: Image, *options: str, arguments: tuple[str, ...] = ()) -> Iterator[Server]:
    """A container without privileges whose files cannot be changed. Prints the time from its start until it is ready."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    environment = [f"--env=TESSERA_SERVER_{name}={address}" for name, address in zip(("HTTP", "GRPC", "METRICS"), addresses)]
    restrictions = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    health = [f'--health-cmd=["/usr/bin/tessera", "health", "--server", "{addresses[0]}"]', "--health-interval=disable"]
    podman = image.containers.podman
    container = podman("create", *restrictions, *health, *environment, *options, image.name, *arguments)
    server = Server(image, container, f"http://{addresses[0]}", f"http://{addresses[2]}/metrics")
    begun = time.monotonic()
    podman("start", container)
    started = time.monotonic()
    until(server.ready, lambda: f"ready:\n{server.log()[-3000:]}")
    print(f"\ncontainer: `podman start` took {started - begun:.2f} s; ready {time.monotonic() - begun:.2f} s after its start")
    try:
        yield server
    finally:
        podman("rm", "--force", "--time", "0", container)


def test_the_image_is_small_and_says_what_it_is(image: Image) -> None:
    megabytes = image.description["Size"] / 1e6
    print(f"\nimage: {megabytes:.1f} MB")
    assert image.description["Size"] < BYTES_MAX
    assert image.description["User"] == "65532:65532"
    labels = image.description["Labels"]
    assert labels["org.opencontainers.image.title"] == "tessera"
    assert labels["org.opencontainers.image.version"] == image.name.rpartition(":")[2]
    assert len(labels["org.opencontainers.image.revision"]) == 40


def test_the_list_of_components_is_valid_and_complete(image: Image) -> None:
    text = image.components.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {component["name"]: component for component in json.loads(text)["components"]}
    print(f"\ncomponents: {len(components)}")
    assert {"tokio", "tract-onnx", "router-core", "onnxruntime", "libc6", "libstdc++6"} <= components.keys()
    assert "proptest" not in components, "only tests use it"
    assert components["tokio"]["purl"].startswith("pkg:cargo/tokio@")
    assert all("licenses" in component for component in components.values() if component.get("purl", "").startswith("pkg:cargo/"))


def test_the_image_and_the_tests_use_the_same_onnxruntime() -> None:
    pin = next(line for line in (ROOT / "deploy/image/requirements.txt").read_text().splitlines() if line.startswith("onnx"))
    assert pin in (ROOT / "tests/requirements.txt").read_text().splitlines()


def test_a_container_serves_without_privileges_and_with_files_that_cannot_be_changed(image: Image) -> None:
    with serving(image) as server:
        answer = server.infer("digits", (ROOT / "models/bundled/digits/sample.json").read_bytes())
        assert answer["outputs"][-1]["data"] == [7], answer
        assert get(f"{server.url}/v2/models/digits")["platform"] == "onnxruntime_onnx"

        status = Path(f"/proc/{image.containers.inspect(server.container)['State']['Pid']}")
        rows = dict(line.split(":", 1) for line in (status / "status").read_text().splitlines())
        assert set(rows["Uid"].split()) == {"65532"} and int(rows["CapEff"], 16) == 0 and rows["NoNewPrivs"].strip() == "1"
        root = next(line.split() for line in (status / "mounts").read_text().splitlines() if line.split()[1] == "/")
        assert "ro" in root[3].split(","), root

        image.containers.podman("healthcheck", "run", server.container)
        server.terminate()
        assert server.exit_code() == 0, server.log()[-3000:]
        health = image.containers.attempt("healthcheck", "run", server.container)
        assert health.returncode != 0, "a stopped container is not healthy"


def test_a_container_answers_what_it_has_accepted_before_it_ends(image: Image, tmp_path: Path) -> None:
    echo(alpha_us=SLOW_US).place(tmp_path / "repository", "slow")
    # For the user of the container. The folders above are the test's own.
    for path in [tmp_path / "repository", *(tmp_path / "repository").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    volume, lanes = f"--volume={tmp_path / 'repository'}:/models:ro", "--env=TESSERA_LANES_COUNT=1"
    with serving(image, volume, lanes, arguments=("serve", "--repository", "/models")) as server:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        body = json.dumps({"inputs": [tensor]}).encode()
        with ThreadPoolExecutor(REQUESTS) as crowd:
            answers = [crowd.submit(server.infer, "slow", body) for _ in range(REQUESTS)]
            until(lambda: server.in_flight() == REQUESTS, "all requests are accepted")
            server.terminate()
            assert not all(answer.done() for answer in answers), "the requests ended before the signal"
            assert server.exit_code() == 0, server.log()[-3000:]
            assert [answer.result()["outputs"][0]["data"] for answer in answers] == [[1.0, 2.0, 3.0, 4.0]] * REQUESTS
