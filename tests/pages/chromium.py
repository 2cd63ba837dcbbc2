"""Drives a headless Chromium with the DevTools protocol over a pipe. Needs no package but the browser."""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
from pathlib import Path

# Time limit of one command of the browser, in seconds.
SECONDS = 30
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
]


class Chromium:
    """A browser in which each page has its own tab. Use it as a context manager."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="pages-", ignore_cleanup_errors=True)
        read_commands, self.commands = os.pipe()
        self.answers, write_answers = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self.number = 0
        self.messages: queue.Queue[dict | None] = queue.Queue()
        # What the page said on the console, exceptions included, and every address that it requested.
        self.errors: list[str] = []
        self.requested: list[str] = []
        self.session: str | None = None
        self.tab: str | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self.commands)
        self.profile.cleanup()

    def _listen(self) -> None:
        with os.fdopen(self.answers, "rb") as pipe:
            rest = b""
            while part := pipe.read1(1 << 16):
                *whole, rest = (rest + part).split(b"\0")
                for message in whole:
                    self.messages.put(json.loads(message))
        self.messages.put(None)

    def _next(self) -> dict:
        message = self.messages.get(timeout=SECONDS)
        if message is None:
            raise RuntimeError(f"the browser ended with {self.process.wait(SECONDS)}")
        # The tab of an earlier page may still report.
        if message.get("sessionId") != self.session:
            return message
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(told["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(str(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        return message

    def call(self, method: str, **parameters: object) -> dict:
        """Sends a command and returns its result."""
        self.number += 1
        command: dict = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while (message := self._next()).get("id") != self.number:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def _new_tab(self) -> None:
        before, self.session = self.tab, None
        self.tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        if before is not None:
            self.call("Target.closeTarget", targetId=before)
        self.session = self.call("Target.attachToTarget", targetId=self.tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str, width: int, scheme: str) -> None:
        """Loads a page in a new tab of `width` pixels and a `light` or `dark` scheme, and waits until it is complete."""
        self._new_tab()
        self.errors.clear()
        self.requested.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        told = self.call("Page.navigate", url=url)
        if "errorText" in told:
            raise RuntimeError(f"{url}: {told['errorText']}")
        while (message := self._next()).get("method") != "Page.loadEventFired" or message.get("sessionId") != self.session:
            pass

    def evaluate(self, script: str) -> object:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(str(told["exceptionDetails"]))
        return told["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(told["data"]))
