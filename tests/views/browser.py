"""A headless Chromium, spoken to over its DevTools pipe: no driver and no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
PATIENCE = float(os.environ.get("ATTNSCOPE_PATIENCE", "30"))


class Browser:
    """One Chromium with one page; `events` holds what it reported, `problems` what it disliked."""

    def __init__(self, program, profile):
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4: a shell puts them there.
        line = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", line, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer, self._count, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Send one command and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._read(end)
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def _read(self, end):
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._in, 1 << 20)
            assert data, "Chromium ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, path, *, width=1400, height=900, dark=False):
        """Open a file at a window size and wait until its map is drawn."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && Boolean(window.attnscopeCells)")
        self.wait_for_map()

    def wait_for_map(self):
        self.wait("document.getElementById('canvas').getAttribute('aria-busy') === 'false'")

    def do(self, expression):
        """Run a line of script in the page and return its value, of a promise what it promised."""
        done = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition):
        end = time.monotonic() + PATIENCE
        while not self.do(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def text(self, element_id):
        return self.do(f"document.getElementById({json.dumps(element_id)}).textContent")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)

    def key(self, name, text=""):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    def picture(self):
        """Return what the window shows, as PNG bytes."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    @property
    def problems(self):
        """What went wrong since the page was opened: errors, refusals, dialogs, requests."""
        self.do("0")  # whatever was reported before this answer has been read with it
        named = {
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Page.javascriptDialogOpening",
        }
        return [
            event
            for event in self.events
            if event.get("method") in named
            # Chromium's own advice on how to read a canvas is a warning and no error
            or event.get("params", {}).get("entry", {}).get("level") == "error"
        ]

    @property
    def requests(self):
        """Every address that was asked for since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def close(self):
        os.close(self._out)  # Chromium ends when nobody is at the other end
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A Chromium; without one the test is skipped, but fails where CI promises one."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        reason = "no chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    opened = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()
