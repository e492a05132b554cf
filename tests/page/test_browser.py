"""The decoding page in Chromium."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from rdm.decoding.trace import TokenState
from rdm.page.page import render
from rdm.page.trajectory import Example, trace_decoding
from tests.browser import headless_chromium, needs_chromium, right_edges, set_screen
from tests.builders import sampler, tiny_system, toy_data
from tests.page.helpers import EVIL, EXAMPLES, LONG, SHORT, trajectory

pytestmark = needs_chromium
LAST = len(LONG) - 1


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with headless_chromium() as driver:
        yield driver


@pytest.fixture
def page(chromium: webdriver.Chrome, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A page of all examples, opened from disk; after each test the browser log must be empty."""
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


def current_iteration(page: webdriver.Chrome) -> int:
    """The value of the slider, checked against the text beside it."""
    index, text = page.execute_script("return [slider.value, now.textContent]")
    assert text == f"{index} / {LAST}"
    return int(index)


def visible(page: webdriver.Chrome) -> list[list[str]]:
    """The states of the visible tokens of every trajectory."""
    return page.execute_script("""
        return [...document.querySelectorAll(".steps")].map((list) =>
            [...list.querySelectorAll(".token")]
                .filter((token) => token.checkVisibility({visibilityProperty: true}))
                .map((token) => token.classList[1]));
    """)


def expected(index: int) -> list[list[str]]:
    """The states at an iteration; shorter trajectories stay at their last one."""
    return [[str(state) for state in states[min(index, len(states) - 1)]] for states in (LONG, SHORT)] * 2


def test_arrow_keys_step(page: webdriver.Chrome) -> None:
    """Right and left, stopping at both ends; the visible tokens are those of the trace."""
    assert (current_iteration(page), visible(page)) == (0, expected(0))
    for index in (1, 2, 3, 3):
        press(page, Keys.ARROW_RIGHT)
        assert (current_iteration(page), visible(page)) == (index, expected(index))
    press(page, Keys.ARROW_LEFT)
    assert (current_iteration(page), visible(page)) == (2, expected(2))
    press(page, Keys.HOME)
    press(page, Keys.ARROW_LEFT)
    assert current_iteration(page) == 0
    press(page, Keys.END)
    assert current_iteration(page) == LAST


def test_page_shows_the_trace_of_a_model(page: webdriver.Chrome, tmp_path: Path) -> None:
    """At every iteration the texts and states of the tokens are those of the trace."""
    data = toy_data(train=16)
    torch.manual_seed(0)
    system, asked = tiny_system(data.vocab, "rdm_multinomial").eval(), data.questions("test").first(2)
    trajectories = trace_decoding(
        "untrained", system, sampler("rdm_multinomial", steps=6), data.codec, asked.rows, seed=1
    )
    file = tmp_path / "model.html"
    file.write_text(render([Example("x", [], [trajectory]) for trajectory in trajectories]), encoding="utf-8")
    page.get(file.as_uri())
    for index in range(7):
        steps = [trajectory.steps[index] for trajectory in trajectories]
        assert visible(page) == [[str(token.state) for token in step.tokens] for step in steps]
        for step, shown in zip(steps, page.find_elements(By.CSS_SELECTOR, "[aria-current] .tokens"), strict=True):
            words = [token.text for token in shown.find_elements(By.CLASS_NAME, "token")]
            assert words == [token.text for token in step.tokens]
        press(page, Keys.ARROW_RIGHT)
    states = {token.state for each in trajectories for step in each.steps for token in step.tokens}
    assert states == set(TokenState) - {TokenState.DELETED}  # of systems that delete tokens


def test_slider_moves_by_mouse_and_keys(page: webdriver.Chrome) -> None:
    """A key moves a focused slider by one step, not two."""
    slider = page.find_element(By.ID, "slider")
    ActionChains(page).move_to_element_with_offset(slider, slider.size["width"] // 2 - 2, 0).click().perform()
    assert (current_iteration(page), visible(page)) == (LAST, expected(LAST))
    press(page, Keys.ARROW_LEFT)
    assert (current_iteration(page), visible(page)) == (LAST - 1, expected(LAST - 1))
    assert slider.get_attribute("aria-valuetext") == f"iteration {LAST - 1} of {LAST}"


def test_buttons_step(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "forward").click()
    page.find_element(By.ID, "forward").click()
    page.find_element(By.ID, "back").click()
    assert (current_iteration(page), visible(page)) == (1, expected(1))


def test_playback_reaches_the_last_iteration(page: webdriver.Chrome) -> None:
    """Started by the space key, by a click, or by the space key on the focused button, which must act only once."""
    button = page.find_element(By.ID, "play")
    for start in (lambda: press(page, Keys.SPACE), button.click, lambda: button.send_keys(Keys.SPACE)):
        press(page, Keys.HOME)
        start()
        WebDriverWait(page, 20).until(lambda _: current_iteration(page) == LAST)
        assert visible(page) == expected(LAST)
        assert button.accessible_name == "Play"


def test_playback_restarts_and_pauses(page: webdriver.Chrome) -> None:
    """It restarts from the end; a second click or a step by key pauses it. One script, so that no time passes."""
    press(page, Keys.END)
    log = page.execute_script("""
        const button = document.getElementById("play"), log = [];
        const act = (action) => { action(); log.push(`${slider.value} ${button.getAttribute("aria-label")}`); };
        const key = new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true});
        act(() => button.click());
        act(() => button.click());
        act(() => button.click());
        act(() => document.body.dispatchEvent(key));
        return log;
    """)
    assert log == ["0 Pause", "0 Play", "0 Pause", "1 Play"]


def test_view_of_all_iterations(page: webdriver.Chrome) -> None:
    """Toggled by button, by key, and by the space key on the focused button."""
    rows = [[str(state) for row in states for state in row] for states in (LONG, SHORT)] * 2
    page.find_element(By.ID, "all").click()
    assert visible(page) == rows
    press(page, "a")
    assert visible(page) == expected(0)
    page.find_element(By.ID, "all").send_keys(Keys.SPACE)
    assert visible(page) == rows


def test_jump_to_a_sentence(page: webdriver.Chrome) -> None:
    """The list scrolls to the sentence and shows the one in view; afterwards the keys step, not the list."""
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 300, "deviceScaleFactor": 1, "mobile": True}
    )
    jump = page.find_element(By.ID, "jump")
    assert jump.accessible_name == "Jump to a sentence"
    Select(jump).select_by_index(1)
    top = page.execute_script('return document.getElementById("sentence-2").getBoundingClientRect().top')
    assert abs(top) < 2
    press(page, Keys.ARROW_RIGHT)
    assert (current_iteration(page), jump.get_attribute("value")) == (1, "sentence-2")
    page.execute_script("scrollTo(0, 0)")
    WebDriverWait(page, 20).until(lambda _: jump.get_attribute("value") == "sentence-1")
    page.execute_script("arguments[0].focus()", jump)
    press(page, "a")
    assert visible(page) == expected(1)  # typed in the list, it selects a sentence


def test_right_to_left_text_does_not_change_sides(page: webdriver.Chrome, tmp_path: Path) -> None:
    """The first position is at the right edge from the first iteration on, when all tokens are masks."""
    decoded = dataclasses.replace(trajectory("rtl", LONG, "שלום"), output="שלום")
    file = tmp_path / "rtl.html"
    file.write_text(render([Example("a source", [], [decoded])]), encoding="utf-8")
    page.get(file.as_uri())
    edges = """
        const tokens = [...document.querySelectorAll("[aria-current] .token")];
        return tokens.map((token) => token.getBoundingClientRect().left);
    """
    first = page.execute_script(edges)
    assert first == sorted(first, reverse=True)
    for _ in range(LAST):
        press(page, Keys.ARROW_RIGHT)
        assert page.execute_script(edges) == first


def test_all_iterations_are_shown_without_javascript(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    page.refresh()
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert [len(each) for each in visible(page)] == [16, 6, 16, 6]
    assert not page.find_element(By.CLASS_NAME, "player").is_displayed()


def test_markup_in_text_is_not_interpreted(page: webdriver.Chrome) -> None:
    """It is shown verbatim; the fixture checks after every test that no script in it has run."""
    assert page.find_elements(By.CSS_SELECTOR, ".texts dd")[2].text == EVIL
    assert page.find_elements(By.TAG_NAME, "img") == []


def test_colours_depend_on_state_and_confidence(page: webdriver.Chrome) -> None:
    """The four states look different, and tokens of higher confidence are more opaque."""
    styles = page.execute_script("""
        const style = (state) => getComputedStyle(document.querySelector(`.step .token.${state}`));
        const kept = document.querySelector(".step .token.kept"), before = getComputedStyle(kept).backgroundColor;
        kept.style.setProperty("--confidence", .1);
        const looks = ["noise", "new", "kept", "back"].map((state) =>
            [style(state).backgroundImage, style(state).backgroundColor, style(state).borderStyle].join());
        return [looks, before, getComputedStyle(kept).backgroundColor];
    """)
    looks, confident, unsure = styles
    assert len(set(looks)) == 4
    alphas = [float(colour.rstrip(")").split(",")[-1].split("/")[-1]) for colour in (confident, unsure)]
    assert alphas[0] > alphas[1] + 0.2


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_layout_fits_narrow_screens_in_light_and_dark(page: webdriver.Chrome, width: int, scheme: str) -> None:
    """No element overflows horizontally in either view, even with a token longer than the screen."""
    set_screen(page, width, scheme)
    for _ in range(2):
        assert max(right_edges(page)) <= width
        press(page, "a")
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert (red < 60) == (scheme == "dark")
