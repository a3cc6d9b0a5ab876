"""A real Chromium for tests, and what it saw: requests, errors, the places of things on the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Binaries, not the wrappers in bin, which leave a process behind.
BINARIES = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
)
LIMIT = 600_000.0
"""Milliseconds that a page may take on a machine that has a lot to do."""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

OVERLAPPING_LABELS = """() => {
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  for (const plot of document.querySelectorAll('.plot')) {
    if (!plot.querySelector('.main-svg')) continue;
    const texts = [...plot.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle, .textpoint text')]
      .map((e) => ({ words: e.textContent, box: e.getBoundingClientRect() }))
      .filter(({ box }) => box.width > 0);
    texts.forEach((one, i) => texts.slice(i + 1).forEach((other) => {
      if (meets(one.box, other.box)) found.push([plot.dataset.figure, one.words, other.words]);
    }));
  }
  return found;
}"""


def chromium_path() -> str | None:
    named = os.environ.get("ELSA_CHROMIUM")
    if named:
        return named
    found = next((path for path in BINARIES if Path(path).exists()), None)
    return found or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Skips, with the reason, where there is no browser or no playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium: install chromium-headless-shell, or set ELSA_CHROMIUM to a binary")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", *arguments], timeout=LIMIT
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and every request and error it made."""

    def __init__(self, browser: Browser, width: int = 1280, **context: Any):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **context)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(LIMIT)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )

    def open_report(self, path: Path) -> Page:
        self.page.goto(path.resolve().as_uri())
        self.wait_drawn()
        return self.page

    def wait_drawn(self) -> None:
        self.page.wait_for_function("document.documentElement.dataset.drawn === 'yes'")

    def requested_elsewhere(self, own: str) -> list[str]:
        """Requests that left the page's own place; data inside the page is none."""
        return [url for url in self.requests if not url.startswith((own, "data:", "blob:"))]

    def close(self) -> None:
        self.context.close()
