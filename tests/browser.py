"""Headless Chromium for tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver")


@contextmanager
def headless_chromium() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def set_screen(page: webdriver.Chrome, width: int, scheme: str, height: int = 800) -> None:
    """Change the size of the window, and whether the user prefers ``light`` or ``dark``."""
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def right_edges(page: webdriver.Chrome) -> list[float]:
    """The right edges of the document and of all visible elements."""
    return page.execute_script("""
        return [document.documentElement.scrollWidth, ...[...document.querySelectorAll("body *")]
            .filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().right)];
    """)
