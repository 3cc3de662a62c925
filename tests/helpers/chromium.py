"""A browser for tests, spoken to over a pipe in its own protocol: at any width, light or dark."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab. What it asked the network for and what it complained about are kept.

    Attributes:
        requests: addresses that were asked for.
        complaints: errors, exceptions, and everything on the console.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in, self._rest, self._number = to_browser, from_browser, b"", 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of this size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Page.navigate", url=path.as_uri())
        self.run("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """What an expression gives, waited for."""
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, (method, heard)
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        """The next message; events are noted on the way."""
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has gone"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        heard: dict[str, Any] = json.loads(text)
        event, about = heard.get("method"), heard.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(about))
        return heard


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A tab in a browser of its own, which ends with the block."""
    assert PROGRAM is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    flags += ["--disable-background-networking", f"--user-data-dir={profile}"]
    script = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'  # the protocol's own numbers
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", PROGRAM, *flags],
        pass_fds=(to_browser[0], from_browser[1]),
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Page(to_browser[1], from_browser[0])
    finally:
        process.terminate()
        process.wait(timeout=30)
        os.close(to_browser[1])
        os.close(from_browser[0])
