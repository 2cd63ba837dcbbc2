"""A bucket on a real S3 protocol server (moto's), and a proxy before it that counts, stalls and refuses."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

BUCKET = "models"
KEY_ID, SECRET = "AKIAEXAMPLEOFTESTS", "a-secret-of-the-tests-0123456789"


def example() -> Path:
    if named := os.environ.get("MIRROR_BIN"):
        return Path(named)
    built = [ROOT / "target" / profile / "examples" / "mirror" for profile in ("release", "debug")]
    return next((path for path in built if path.exists()), built[0])


@dataclass
class Proxy:
    """Passes requests on to a server, counts the bytes of content, and can stop after some bytes or refuse everything."""

    upstream: str
    port: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    content_bytes: int = 0
    # Content of this many bytes passes; then the connection stalls until `resume` is set.
    stall_after: int | None = None
    stalled: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    # Connections that are open then end with their next request.
    stopped: bool = False

    def start(self) -> None:
        proxy = self
        self.stopped = False

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if proxy.stopped:
                    self.close_connection = True
                    return
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                proxy.requests.append((self.command, self.path, {name.lower(): value for name, value in headers.items()}))
                request = urllib.request.Request(f"{proxy.upstream}{self.path}", headers=headers, method=self.command)
                try:
                    response = urllib.request.urlopen(request, timeout=30)
                except urllib.error.HTTPError as error:
                    response = error
                body = response.read()
                self.send_response(response.status)
                for name, value in response.headers.items():
                    if name.lower() not in {"connection", "transfer-encoding", "content-length", "date", "server"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.send(body, is_listing="list-type" in self.path)
                except OSError:
                    self.close_connection = True

            def send(self, body: bytes, is_listing: bool) -> None:
                step = 1 << 16
                for start in range(0, len(body), step):
                    if not is_listing:
                        if proxy.stall_after is not None and proxy.content_bytes >= proxy.stall_after:
                            proxy.stalled.set()
                            proxy.resume.wait(60)
                            self.close_connection = True
                            return
                        proxy.content_bytes += len(body[start : start + step])
                    self.wfile.write(body[start : start + step])

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.stopped = True
        self.server.shutdown()
        self.server.server_close()

    def gets(self) -> list[tuple[str, str, dict[str, str]]]:
        return [request for request in self.requests if "list-type" not in request[1]]

    def reset(self) -> None:
        self.requests.clear()
        self.content_bytes = 0


@dataclass
class Source:
    """A bucket, and the cache folder of the mirror under test."""

    proxy: Proxy
    client: object
    cache: Path

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"prod/{key}", Body=content)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"prod/{key}")

    def command(self, *options: str, url: str = f"s3://{BUCKET}/prod") -> list[str]:
        endpoint = f"endpoint=http://127.0.0.1:{self.proxy.port}"
        return [str(example()), url, str(self.cache), endpoint, "allow_http=true", "region=us-east-1", *options]

    def mirror(self, *options: str, code: int = 0, secret: str = SECRET, **words: str) -> dict:
        told = subprocess.run(self.command(*options, **words), capture_output=True, text=True, timeout=120, env=environment(secret))
        assert told.returncode == code, told.stdout + told.stderr
        assert secret not in told.stdout + told.stderr
        return json.loads(told.stdout)

    def expect(self, answer: dict, content: dict[str, bytes]) -> None:
        folder = Path(answer["folder"])
        found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert found == content
        assert (self.cache / "current").resolve() == folder


def environment(secret: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    kept = {name: value for name, value in kept.items() if "proxy" not in name.lower()}
    return kept | {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": secret, "NO_PROXY": "*"}
