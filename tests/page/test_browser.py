"""The page in a real browser: Debian's Chromium, or what is found under that name."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from rdm.decoding.trace import TokenState
from rdm.page.page import render
from rdm.page.trajectory import Example, trace_decoding
from tests.builders import sampler, tiny_system, toy_data
from tests.page.helpers import EVIL, EXAMPLES, LONG, SHORT

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver")
LAST = len(LONG) - 1


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: webdriver.Chrome, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """The examples on a page that is opened from disk; whatever a test does there, the browser has nothing to say."""
    file = tmp_path / "page.html"
    file.write_text(render(EXAMPLES), encoding="utf-8")
    chromium.get(file.as_uri())
    yield chromium
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return window.hacked") is None
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def press(page: webdriver.Chrome, key: str) -> None:
    ActionChains(page).send_keys(key).perform()


def now(page: webdriver.Chrome) -> int:
    """Where the slider is; everything else that says so agrees."""
    index, said = page.execute_script("return [slider.value, now.textContent]")
    assert said == f"{index} / {LAST}"
    return int(index)


def visible(page: webdriver.Chrome) -> list[list[str]]:
    """The states of the tokens that can be seen, of every decoding."""
    return page.execute_script("""
        return [...document.querySelectorAll(".steps")].map((list) =>
            [...list.querySelectorAll(".token")]
                .filter((token) => token.checkVisibility({visibilityProperty: true}))
                .map((token) => token.classList[1]));
    """)


def expected(index: int) -> list[list[str]]:
    """A short decoding stays at its end."""
    return [[str(state) for state in states[min(index, len(states) - 1)]] for states in (LONG, SHORT)] * 2


def test_keys_step(page: webdriver.Chrome) -> None:
    """Right and left, to the ends and not beyond; the tokens seen are those of the trace."""
    assert (now(page), visible(page)) == (0, expected(0))
    for index in (1, 2, 3, 3):
        press(page, Keys.ARROW_RIGHT)
        assert (now(page), visible(page)) == (index, expected(index))
    press(page, Keys.ARROW_LEFT)
    assert (now(page), visible(page)) == (2, expected(2))
    press(page, Keys.HOME)
    press(page, Keys.ARROW_LEFT)
    assert now(page) == 0
    press(page, Keys.END)
    assert now(page) == LAST


def test_a_decoding_of_a_model(page: webdriver.Chrome, tmp_path: Path) -> None:
    """Iteration by iteration, as many tokens of each colour as the trace has, and no other text."""
    data = toy_data(train=16)
    torch.manual_seed(0)
    system, asked = tiny_system(data.vocab, "rdm_multinomial").eval(), data.questions("test").first(2)
    ways = trace_decoding("untrained", system, sampler("rdm_multinomial", steps=6), data.codec, asked.rows, seed=1)
    file = tmp_path / "model.html"
    file.write_text(render([Example("x", [], [way]) for way in ways]), encoding="utf-8")
    page.get(file.as_uri())
    for index in range(7):
        assert visible(page) == [[str(token.state) for token in way.steps[index].tokens] for way in ways]
        for way, shown in zip(ways, page.find_elements(By.CSS_SELECTOR, "[aria-current] .tokens"), strict=True):
            words = [token.text for token in shown.find_elements(By.CLASS_NAME, "token")]
            assert words == [token.text for token in way.steps[index].tokens]
        press(page, Keys.ARROW_RIGHT)
    assert {token.state for way in ways for step in way.steps for token in step.tokens} == set(TokenState)


def test_the_slider_moves(page: webdriver.Chrome) -> None:
    """By the mouse, and by the keys once it has been touched: one step a key, not two."""
    slider = page.find_element(By.ID, "slider")
    ActionChains(page).move_to_element_with_offset(slider, slider.size["width"] // 2 - 2, 0).click().perform()
    assert (now(page), visible(page)) == (LAST, expected(LAST))
    press(page, Keys.ARROW_LEFT)
    assert (now(page), visible(page)) == (LAST - 1, expected(LAST - 1))
    assert slider.get_attribute("aria-valuetext") == f"iteration {LAST - 1} of {LAST}"


def test_the_buttons_step(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "on").click()
    page.find_element(By.ID, "on").click()
    page.find_element(By.ID, "back").click()
    assert (now(page), visible(page)) == (1, expected(1))


def test_it_plays(page: webdriver.Chrome) -> None:
    """By the space, or the button, which the space presses once and not twice."""
    button = page.find_element(By.ID, "play")
    for start in (lambda: press(page, Keys.SPACE), button.click, lambda: button.send_keys(Keys.SPACE)):
        press(page, Keys.HOME)
        start()
        WebDriverWait(page, 20).until(lambda _: now(page) == LAST)
        assert visible(page) == expected(LAST)
        assert button.accessible_name == "Play"


def test_play_and_pause(page: webdriver.Chrome) -> None:
    """From the end it starts again; pressed again, or with a step by hand, it stops. (At once, before time passes.)"""
    press(page, Keys.END)
    said = page.execute_script("""
        const button = document.getElementById("play"), said = [];
        const act = (action) => { action(); said.push(`${slider.value} ${button.getAttribute("aria-label")}`); };
        const key = new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true});
        act(() => button.click());
        act(() => button.click());
        act(() => button.click());
        act(() => document.body.dispatchEvent(key));
        return said;
    """)
    assert said == ["0 Pause", "0 Play", "0 Pause", "1 Play"]


def test_all_iterations(page: webdriver.Chrome) -> None:
    """Rows, by button or key, and back; the space belongs to the button that has the focus."""
    rows = [[str(state) for row in states for state in row] for states in (LONG, SHORT)] * 2
    page.find_element(By.ID, "all").click()
    assert visible(page) == rows
    press(page, "a")
    assert visible(page) == expected(0)
    page.find_element(By.ID, "all").send_keys(Keys.SPACE)
    assert visible(page) == rows


def test_without_script_all_iterations_are_there(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    page.refresh()
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert [len(each) for each in visible(page)] == [16, 6, 16, 6]
    assert not page.find_element(By.CLASS_NAME, "player").is_displayed()


def test_text_does_not_run(page: webdriver.Chrome) -> None:
    """It is shown as it is. (That nothing has run is looked at after every test.)"""
    assert page.find_elements(By.CSS_SELECTOR, ".given dd")[2].text == EVIL
    assert page.find_elements(By.TAG_NAME, "img") == []


def test_colours_follow_state_and_confidence(page: webdriver.Chrome) -> None:
    """Four states look different, and a surer token stronger."""
    styles = page.execute_script("""
        const of = (state) => getComputedStyle(document.querySelector(`.step .token.${state}`));
        const sure = document.querySelector(".step .token.kept"), before = getComputedStyle(sure).backgroundColor;
        sure.style.setProperty("--sure", .1);
        const looks = ["noise", "new", "kept", "back"].map((state) =>
            [of(state).backgroundImage, of(state).backgroundColor, of(state).borderStyle].join());
        return [looks, before, getComputedStyle(sure).backgroundColor];
    """)
    looks, surer, less_sure = styles
    assert len(set(looks)) == 4
    alphas = [float(colour.rstrip(")").split(",")[-1].split("/")[-1]) for colour in (surer, less_sure)]
    assert alphas[0] > alphas[1] + 0.2


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_phones_and_the_dark(page: webdriver.Chrome, width: int, scheme: str) -> None:
    """Nothing sticks out sideways, in either view, even with a token longer than the screen; dark is dark."""
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    for _ in range(2):
        wide = page.execute_script("""
            return [document.documentElement.scrollWidth, ...[...document.querySelectorAll("body *")]
                .filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().right)];
        """)
        assert max(wide) <= width
        press(page, "a")
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert (red < 60) == (scheme == "dark")
