"""Headless Chromium, driven by its DevTools protocol over a pair of pipes."""

import base64
import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from PIL import Image

# A limit for a hang of all tests together, in seconds; they take some ten.
TIME_LIMIT = 300
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The number of a key, and the text that it writes.
NAMED_KEYS = {
    "Backspace": (8, ""),
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    " ": (32, " "),
    "Escape": (27, ""),
    "ArrowUp": (38, ""),
    "ArrowDown": (40, ""),
}
# The browser reads commands from descriptor 3 and writes to 4.
LAUNCH = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Tab(contextlib.AbstractContextManager["Tab"]):
    """A browser with one tab, and the events that it reports.

    Attributes:
        events: what the browser reported, in order.
    """

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium")
        assert program is not None, "these tests need Chromium: Debian's package is chromium"
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        with (profile.parent / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", LAUNCH, str(commands), str(answers), program),
                    *(*FLAGS, f"--user-data-dir={profile}", "about:blank"),
                ],
                pass_fds=(commands, answers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(commands)
        os.close(answers)
        self._limit = threading.Timer(TIME_LIMIT, self._process.kill)
        self._limit.start()
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        (page,) = (target["targetId"] for target in targets if target["type"] == "page")
        session = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = session["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._limit.cancel()
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method, **parameters):
        """What the browser answers to a command."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, address, *, width=1280, height=900, dark=False, script=True):
        """Loads a page anew in a window of that size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        # If only the fragment differed, the page would not load again.
        self._go("about:blank")
        self.events.clear()
        self._go(address)
        self._await_frame()

    def evaluate(self, expression):
        """The value of an expression in the page, or what it promises."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, *keys):
        """Presses keys one after another: a letter, or a key by its name."""
        for key in keys:
            code, text = NAMED_KEYS.get(key, (ord(key[0].upper()), key))
            parameters = {"key": key, "windowsVirtualKeyCode": code}
            written = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
            self.call("Input.dispatchKeyEvent", **parameters, **written)
            self.call("Input.dispatchKeyEvent", **parameters, type="keyUp")

    def download(self, folder, expression):
        """The path of the file that an expression of the page saves."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        first = len(self.events)
        self.evaluate(expression)
        name = self._wait("Page.downloadWillBegin", first)["suggestedFilename"]
        self._wait("Page.downloadProgress", first, state="completed")
        return folder / name

    def choose_file(self, identifier, *paths):
        """Gives files to a field for files."""
        field = self.call("Runtime.evaluate", expression=f"document.getElementById('{identifier}')")
        self.call(
            "DOM.setFileInputFiles",
            files=list(map(str, paths)),
            objectId=field["result"]["objectId"],
        )

    def complaints(self):
        """What the browser finds wrong with the page, and what the page asks others for."""
        wrong = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [
            event["params"]
            for event in self.events
            if event["method"] in wrong
            or (
                event["method"] == "Network.requestWillBeSent"
                and not event["params"]["request"]["url"].startswith("data:")
                and event["params"]["type"] != "Document"
            )
        ]

    def texts(self, selector):
        """The texts of the elements that a selector finds, in their order."""
        found = f"document.querySelectorAll({json.dumps(selector)})"
        found = f"Array.from({found}, (one) => one.textContent)"
        return json.loads(self.evaluate(f"JSON.stringify({found})"))

    def fill(self, identifier, value):
        """Does what a person does to a field."""
        self.evaluate(
            f"{{ const one = document.getElementById('{identifier}'); one.value = "
            f"{json.dumps(value)}; one.dispatchEvent(new Event('input', {{ bubbles: true }})); }}"
        )

    def keeps_page(self, what="new File(['x'], 'x.txt')"):
        """Whether the page keeps the browser from its own answer to something that is dropped.

        That answer is to open a file in place of the page. A browser without a window never does.
        """
        script = f"""["dragover", "drop"].every((kind) => {{
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add({what});
          const event = new DragEvent(kind, {{ dataTransfer, bubbles: true, cancelable: true }});
          return !document.body.dispatchEvent(event);
        }})"""
        return self.evaluate(script)

    def screenshot(self) -> np.ndarray:
        """The pixels of the window, [height, width, 3]."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            return np.asarray(image.convert("RGB"))

    def _go(self, address):
        first = len(self.events)
        self.call("Page.navigate", url=address)
        self._wait("Page.loadEventFired", first)

    def _await_frame(self):
        """Waits until the page is drawn: a browser on a busy machine may draw after the load.

        Before the first frame, `content-visibility: auto` leaves every card without its text. A
        picture of the page needs a frame, also without scripts.
        """
        self.call("Page.captureScreenshot", format="jpeg", quality=1)

    def _wait(self, method, first, **values):
        """What an event reports that has these values, among those from a place on."""
        events = itertools.chain(self.events[first:], iter(self._next_event, None))
        of_kind = (event["params"] for event in events if event.get("method") == method)
        return next(reported for reported in of_kind if values.items() <= reported.items())

    def _next_event(self):
        self.events.append(self._next())
        return self.events[-1]

    def _next(self):
        while b"\0" not in self._received:
            read = os.read(self._answers, 1 << 20)
            assert read, "the browser has ended"
            self._received += read
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)
