"""A real browser without a screen: Debian's Chromium, with a profile of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from selenium.common import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from tests.servers import ServerMissing, reaper
from tests.servers.own import make_directory
from tests.servers.watch import forget
from tests.support import SECONDS

#: Set by ``python -m tests.golden pictures``: the tests write the pictures of the docs again.
PICTURES = "DBLOCK_TEST_PICTURES"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
MISSING = "no chromium with its driver on this machine (apt install chromium chromium-driver)"
FLAGS = (
    "--headless",
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    # It is to talk to the tests' own servers, and to nobody else.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,720",
    "--hide-scrollbars",
)


class Browser:
    def __init__(self) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            raise ServerMissing("Chromium", MISSING)
        self._chromium, self._driver = chromium, driver

    def __enter__(self) -> Self:
        # Named in their command lines, so that it takes them along even when the tests are killed.
        self._directory = make_directory()
        options = ChromeOptions()
        options.binary_location = self._chromium
        for flag in (*FLAGS, f"--user-data-dir={self._directory / 'profile'}"):
            options.add_argument(flag)
        log = str(self._directory / "driver.log")
        try:
            self.chrome = Chrome(options, ChromeService(self._driver, log_output=log))
            self.chrome.set_page_load_timeout(SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.chrome.quit()
        finally:
            self._end()

    def _end(self) -> None:
        reaper.discard(self._directory)
        forget(self._directory)

    @property
    def text(self) -> str:
        """What can be read on the page."""
        return self.chrome.find_element(By.TAG_NAME, "body").text

    def console(self) -> list[str]:
        """What the page and the browser have complained of since the last call."""
        get_log: Any = self.chrome.get_log
        return [entry["message"] for entry in get_log("browser")]

    def picture(self, name: str) -> None:
        """Keep the page, as it looks now, for the docs, if this run writes their pictures."""
        if os.environ.get(PICTURES):
            self.chrome.save_screenshot(IMAGES / f"{name}.png")

    def find(self, css: str) -> WebElement:
        return self.chrome.find_element(By.CSS_SELECTOR, css)

    def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            self.find(f"[name={name}]").send_keys(value)

    def submit(self, css: str) -> None:
        """Press a button, and wait for the page that comes of it."""
        before = self.find("html")
        self.find(css).click()
        patient = WebDriverWait(self.chrome, SECONDS, 0.05, [WebDriverException])
        patient.until(staleness_of(before))
