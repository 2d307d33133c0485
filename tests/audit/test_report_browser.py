"""report.html in headless Chromium: nothing is fetched, nothing complains, the verdict is on the first screen.

Speaks the DevTools protocol through a pipe, so that no port is opened and nothing is waited for but answers.
`ODRADEK_SHOTS=DIR` keeps the pictures.
"""

from __future__ import annotations

import base64
import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import ACKS_ALL, History
from odradek_audit.report.files import write_report
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import told
from tests.audit.corruption import plant
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
PATIENCE_S = 180
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-default-apps --mute-audio "
    "--force-color-profile=srgb --disable-dev-shm-usage --remote-debugging-pipe"
)
START = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, target in zip(high, (3, 4)):
    os.dup2(number, target)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium takes orders from file descriptor 3 and answers to 4."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine (apt-get install chromium)"),
]


class Browser:
    """One page of one headless Chromium. Every event that it reports is kept."""

    def __init__(self, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        arguments = [sys.executable, "-c", START, str(commands), str(answers), CHROMIUM, *FLAGS.split()]
        self.process = subprocess.Popen(
            [*arguments, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.events: list[dict[str, Any]] = []
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = ""
        self.call("Browser.close")
        self.process.wait(timeout=PATIENCE_S)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Order something and return the answer. Raises `TimeoutError`, and `RuntimeError` when it is refused."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no word from {CHROMIUM} for {PATIENCE_S} s")
            piece = os.read(self._read, 1 << 20)
            assert piece, f"{CHROMIUM} has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Load a file in a window of a size, and return when it has loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; the page's own policy does not hold for this."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def told(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]

    def picture(self, name: str) -> bytes:
        """The window as PNG; kept where ODRADEK_SHOTS says."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if os.environ.get("ODRADEK_SHOTS"):
            (Path(os.environ["ODRADEK_SHOTS"]) / f"{name}.png").write_bytes(data)
        return data


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for the module."""
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def orders(count: int) -> list[bytes]:
    return [b'{"order": %d, "item": "kettle", "qty": %d}' % (number, number % 7 + 1) for number in range(count)]


def orders_log(values: list[bytes]) -> SampleLog:
    """Three epochs: 0 from the start, 2 from offset 40, 3 from offset 100."""
    log = SampleLog()
    for start in range(0, len(values), 5):
        log.append(values[start : start + 5], epoch=0 if start < 40 else 2 if start < 100 else 3)
    return log


@pytest.fixture(params=["clean", "lost", "divergence", "damaged"])
def report_page(request: pytest.FixtureRequest, write_cluster: WriteCluster, tmp_path: Path) -> tuple[str, Path]:
    """A run that survived, and three that did not."""
    values = orders(115)
    log = orders_log(values)
    history = History(told(ACKS_ALL, values=values))
    logs = [log, log, log]
    if request.param == "lost":
        stale = log.up_to(100).append(values[100:115], epoch=2)
        logs = [log.up_to(105), log.up_to(105), stale]
    if request.param == "divergence":
        other = [*values[:102], b'{"order": 102, "item": "TEAPOT", "qty": 5}', *values[103:]]
        logs[1] = orders_log(other)
    replicas = write_cluster(*[SamplePartition(each, high_watermark=100) for each in logs])
    if request.param == "damaged":
        plant("flip-byte", replicas["2"], TopicPartition("t", 0), random.Random(5))
    report = audit(replicas, history=history)
    report.made_at = "2026-01-02 03:04 UTC"
    write_report(report, tmp_path / "out")
    return request.param, tmp_path / "out" / "report.html"


def in_first_screen(browser: Browser, selector: str) -> bool:
    """Whether an element is there, has a size, and ends above the window's lower edge."""
    expression = (
        f"(() => {{const e = document.querySelector({selector!r}); if (!e) return false;"
        "const r = e.getBoundingClientRect(); return r.height > 0 && r.top >= 0 && r.bottom <= innerHeight})()"
    )
    return browser.evaluate(expression) is True


@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 800, False), (1280, 800, True), (390, 844, False)])
def test_page_is_silent_and_starts_with_the_verdict(
    browser: Browser, report_page: tuple[str, Path], width: int, height: int, dark: bool
) -> None:
    """One request, for the file itself; an empty console; the verdict in the first screen; no sideways scrolling."""
    name, path = report_page
    browser.open(path, width, height, dark=dark)
    asked = [event["request"]["url"] for event in browser.told("Network.requestWillBeSent")]
    assert [url for url in asked if url != "data:,"] == [path.as_uri()]
    assert browser.told("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    assert in_first_screen(browser, ".verdict .word")
    assert in_first_screen(browser, ".verdict .why")
    word = browser.evaluate("document.querySelector('.verdict .word').textContent")
    assert word == ("SURVIVED" if name == "clean" else "FINDINGS")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 23, 26)" if dark else "rgb(251, 251, 249)")
    assert len(browser.picture(f"{name}-{width}{'-dark' if dark else ''}")) > 10_000


def test_evidence_is_reached_by_keyboard_and_by_link(browser: Browser, report_page: tuple[str, Path]) -> None:
    """Each link leads to a place on the page, and what opens or scrolls can be focused."""
    _, path = report_page
    browser.open(path, 1280, 800)
    lost = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.querySelector(a.getAttribute('href')))"
    )
    assert browser.evaluate(f"{lost}.length") == 0
    mute = "[...document.querySelectorAll('.scroll')].filter(e => e.tabIndex !== 0 || !e.getAttribute('aria-label'))"
    assert browser.evaluate(f"{mute}.length") == 0
    for _ in range(2):  # past the link that skips to the findings
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.evaluate("['A', 'SUMMARY', 'DIV', 'PRE'].includes(document.activeElement.tagName.toUpperCase())")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(browser: Browser, report_page: tuple[str, Path], dark: bool) -> None:
    """Every text has a contrast of at least 4.5 to 1 (WCAG AA), light and dark."""
    _, path = report_page
    browser.open(path, 1280, 800, dark=dark)
    assert browser.evaluate(CONTRAST) == []


CONTRAST = """(() => {
  const rgb = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || !e.getClientRects().length) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(e.className + ' ' + e.textContent.slice(0, 40) + ' ' + ratio.toFixed(2));
  }
  return [...new Set(bad)].slice(0, 10);
})()"""


def test_whole_page_prints(browser: Browser, report_page: tuple[str, Path]) -> None:
    """As PDF it has pages, and closed details are opened for it."""
    name, path = report_page
    browser.open(path, 1280, 800)
    data = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert data.startswith(b"%PDF-")
    browser.call("Emulation.setEmulatedMedia", media="print")
    closed = "[...document.querySelectorAll('details:not([open]) > :not(summary)')].filter(e => !e.offsetHeight).length"
    assert browser.evaluate(closed) == 0, name
    browser.call("Emulation.setEmulatedMedia", media="")
