"""A page in headless Chromium, told what to do by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from select import select
from typing import Any, NoReturn

import pytest

PATIENCE = 60
"""How many seconds it may say nothing."""


def without_chromium() -> NoReturn:
    """Skip the test where nobody promised a browser; fail it in CI, which would otherwise check less than it says."""
    needs = "needs Chromium: apt-get install chromium"
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"{needs}; CI is set, where no test of a browser may be skipped", pytrace=False)
    pytest.skip(f"{needs} (or google-chrome); with CI=1 this fails instead")


class Browser:
    """Chromium without a window. Where it is not installed the test is skipped; in CI, which sets `CI`, it fails.

    Source: https://chromedevtools.github.io/devtools-protocol, of which messages end in a zero byte.
    """

    def __init__(self, directory: Path):
        names = ("chromium", "chromium-browser", "google-chrome")
        program = next((found for name in names if (found := shutil.which(name))), None)
        if program is None:
            without_chromium()
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += [f"--user-data-dir={directory}", "--window-size=1000,700", "--remote-debugging-pipe"]
        # It reads from the third pipe and writes into the fourth, whatever their numbers were here.
        command = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *options],
            env={**os.environ, "IN": str(theirs_in), "OUT": str(theirs_out)},
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._count = b"", 0
        self.complaints: list[Any] = []
        self.requests: list[str] = []

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            assert select([self._in], [], [], PATIENCE)[0], "Chromium says nothing"
            more = os.read(self._in, 1 << 16)
            assert more, "Chromium has ended"
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(message["params"])
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def _ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def told_by(self, page: Path, script: str) -> Any:
        """What a script of asynchronous statements returns in a page, in which nothing goes wrong or is logged.

        What it asks for, itself first, is in `requests` then.
        """
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable", session)
        self.requests.clear()
        self._ask("Page.navigate", session, url=page.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass
        run = {"expression": f"(async () => {{{script}}})()", "awaitPromise": True, "returnByValue": True}
        answer = self._ask("Runtime.evaluate", session, **run)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        self._ask("Target.closeTarget", targetId=target)
        assert self.complaints == []
        return answer["result"]["value"]
