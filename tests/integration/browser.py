"""A real browser for tests: Debian's Chromium, driven by Playwright. There is no test of pages without one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import orjson
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = {"width": 1180, "height": 1000}, {"width": 375, "height": 760}
AXE = files("axe_playwright_python") / "axe.min.js"
ACCESSIBLE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def executable() -> str:
    """The browser: NOONTIDE_TEST_BROWSER, or what is installed. Raises RuntimeError when there is none."""
    found = os.environ.get("NOONTIDE_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError(
            "these tests look at pages in a real browser and there is none: ./scripts/browser installs Chromium "
            "(on Debian and Ubuntu), or name yours in NOONTIDE_TEST_BROWSER"
        )
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window; closed at the end."""
    with sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium has none for root
        browser = playwright.chromium.launch(executable_path=executable(), args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page in a context of its own, and everything in it that went wrong."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        options = {"viewport": WIDE, "timezone_id": "Europe/Paris", "locale": "en-GB", **context}
        self._context = browser.new_context(**options)
        self.url = url
        self.wrong: list[str] = []
        self.elsewhere: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, said: ConsoleMessage) -> None:
        if "Content Security" in said.text:
            self.wrong.append(said.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.elsewhere.append(request.url)

    def open(self, path: str) -> Page:
        """Go to a page of the dashboard, and wait for its heading."""
        self.page.goto(f"{self.url}/#{path}")
        self.page.locator("h1").wait_for()
        expect(self.page.locator("[aria-busy=true]")).to_have_count(0)
        return self.page

    def violations(self) -> list[str]:
        """What axe finds: `rule: element`. The context has to bypass the page's policy, which forbids its script."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8") + "; undefined")
        asked = "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']})"
        found = self.page.evaluate(asked, ACCESSIBLE)
        return [
            f"{each['id']}: {node['html'][:160]} {orjson.dumps(node['any'][:1]).decode()[:300]}"
            for each in found["violations"]
            for node in each["nodes"][:3]
        ]

    def too_wide_by(self) -> int:
        """Pixels that one would have to scroll sideways."""
        found = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return int(found)

    def close(self) -> None:
        """Close it. Nothing went wrong, and nothing was asked of other sites."""
        self._context.close()
        assert not self.wrong, self.wrong
        assert not self.elsewhere, self.elsewhere
