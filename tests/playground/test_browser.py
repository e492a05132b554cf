"""The playground in Chromium."""

import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
import uvicorn
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from rdm.playground import decoding_request
from rdm.playground.__main__ import listen
from rdm.playground.decoding_queue import DecodingQueue
from rdm.playground.server import create_app
from tests.browser import headless_chromium, needs_chromium, right_edges, set_screen
from tests.page.helpers import EVIL, EVIL_ATTRIBUTE
from tests.playground.helpers import PROMPT, SOURCE, offer

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with headless_chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a playground with a model that fills blanks, one that does not, and a language model."""
    offers = [offer(kind) for kind in ("diffusion", "ar", "lm")]
    app = create_app(offers, DecodingQueue(limit=4))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    with listen("127.0.0.1", "0") as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture
def page(chromium: webdriver.Chrome, address: str) -> Iterator[webdriver.Chrome]:
    """The page; after each test the browser has reported nothing, and no script of a text has run."""
    open_page(chromium, address)
    yield chromium
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return window.hacked") is None
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def open_page(page: webdriver.Chrome, link: str) -> None:
    page.get("about:blank")  # another fragment alone would not load the page
    page.get(link)
    WebDriverWait(page, 20).until(lambda _: page.find_elements(By.CSS_SELECTOR, ".settings-row input"))


def all_of(page: webdriver.Chrome, selector: str) -> list[WebElement]:
    return page.find_elements(By.CSS_SELECTOR, selector)


def choose(page: webdriver.Chrome, side: int, model: str, strategy: str = "as_trained", **values: object) -> None:
    """Select model and strategy of side 0 or 1, and set values by key."""
    Select(all_of(page, ".models")[side]).select_by_value(model)
    Select(all_of(page, ".strategies")[side]).select_by_value(strategy)
    for key, value in values.items():
        field = all_of(page, ".choice")[side].find_element(By.CSS_SELECTOR, f"[data-key='{key}']")
        field.clear()
        field.send_keys(str(value))


def wait_for_results(page: webdriver.Chrome) -> None:
    WebDriverWait(page, 60).until(lambda _: not all_of(page, ".status.busy"))


def decode(page: webdriver.Chrome, text: str) -> list[str]:
    """Type a text, press Enter, wait, and return what is said about the two decodings."""
    field = page.find_element(By.ID, "text")
    field.clear()
    field.send_keys(text, Keys.ENTER)
    wait_for_results(page)
    return [status.text for status in all_of(page, ".status")]


def shown_tokens(page: webdriver.Chrome, side: int) -> list[str]:
    """The tokens of the current iteration of one side."""
    return page.execute_script(
        "return [...document.querySelectorAll('.view')[arguments[0]].querySelectorAll('[aria-current] .token')]"
        ".map((token) => token.textContent)",
        side,
    )


def test_typed_sentence_is_decoded_and_played(page: webdriver.Chrome) -> None:
    """Playback starts by itself and ends at the last iteration, which is the trace of the Python API; keys step."""
    choose(page, 0, "diffusion", "rdm", steps=4)
    choose(page, 1, "diffusion", "rdm_commit", steps=2)
    assert not page.find_element(By.CLASS_NAME, "player").is_displayed()
    first, second = decode(page, SOURCE)
    assert first.startswith("A: diffusion, ")
    assert first.endswith(" s, 4 network calls")
    assert second.endswith(" s, 2 network calls")
    assert page.find_element(By.ID, "play").accessible_name == "Pause"
    WebDriverWait(page, 20).until(lambda _: page.find_element(By.ID, "now").text == "4 / 4")
    for side, (name, steps) in enumerate((("rdm", 4), ("rdm_commit", 2))):
        (expected,) = offer("diffusion").model.generate([SOURCE], name, steps=steps, trace=True)
        assert expected.trace is not None
        assert shown_tokens(page, side) == [token.text for token in expected.trace.steps[-1].tokens]
        assert all_of(page, ".fill textarea")[side].get_attribute("value") == expected.text
    assert [len(table.find_elements(By.TAG_NAME, "tr")) for table in all_of(page, "tbody")] == [5, 5]  # candidates
    page.find_element(By.ID, "play").send_keys(Keys.ARROW_LEFT)
    assert page.find_element(By.ID, "now").text == "3 / 4"
    page.find_element(By.ID, "text").send_keys("a", Keys.ARROW_LEFT)  # typed, not a command
    assert page.find_element(By.ID, "now").text == "3 / 4"
    page.find_element(By.ID, "text").send_keys(Keys.ESCAPE)
    page.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert page.find_element(By.ID, "now").text == "2 / 4"


def test_each_side_has_its_model_and_what_it_offers(page: webdriver.Chrome) -> None:
    """Two models side by side; settings, filling and the name of the text follow the model."""
    choose(page, 1, "ar", "beam", beam_size=2)
    assert [form.is_displayed() for form in all_of(page, ".fill")] == [True, False]
    settings = [[each.get_attribute("data-key") for each in side.find_elements(By.TAG_NAME, "input")]
                for side in all_of(page, ".choice")]  # fmt: skip
    assert settings[1] == ["beam_size", "length_penalty"]
    assert page.find_element(By.ID, "reads").text == "Source"
    first, second = decode(page, SOURCE)
    assert first.startswith("A: diffusion, ")
    assert second.startswith("B: ar, ")
    assert [heading.text.split(",")[0] for heading in all_of(page, ".view h2")] == ["rdm", "beam"]
    for side in (0, 1):
        choose(page, side, "lm", "open_ended")
    assert page.find_element(By.ID, "reads").text == "Prompt"
    decode(page, PROMPT)
    assert all_of(page, ".fill textarea")[0].get_attribute("value").startswith(PROMPT)
    assert len(shown_tokens(page, 1)) == 64


def test_output_is_edited_and_filled(page: webdriver.Chrome) -> None:
    """A click blanks a word, a second one brings it back; only the blanks change."""
    page.execute_script("document.querySelector('.fill textarea').value = 'one two three';")
    all_of(page, ".fill textarea")[0].send_keys(" four")
    words = all_of(page, ".words button")
    assert [word.text for word in words] == ["one", "two", "three", "four"]
    for index in (1, 2, 2):
        words[index].click()
    assert all_of(page, ".fill textarea")[0].get_attribute("value") == "one _ three four"
    page.find_element(By.ID, "text").send_keys(SOURCE)
    choose(page, 0, "diffusion", steps=2)
    all_of(page, ".fill [type=submit]")[0].click()
    wait_for_results(page)
    (expected,) = offer("diffusion").model.fill("one _ three four", SOURCE, trace=True, steps=2)
    assert all_of(page, ".fill textarea")[0].get_attribute("value") == expected.text
    WebDriverWait(page, 20).until(lambda _: page.find_element(By.ID, "now").text == "2 / 2")
    assert expected.trace is not None
    assert shown_tokens(page, 0) == [token.text for token in expected.trace.steps[-1].tokens]
    assert len(all_of(page, ".view article")) == 1


def test_errors_are_shown_in_words(page: webdriver.Chrome) -> None:
    assert decode(page, "") == ["the source is empty: type a text"] * 2
    long = decode(page, "a " * 70)
    assert long[0].endswith("tokens; 1 to 63 fit")
    assert long[1].startswith("source 1 has ")
    choose(page, 0, "diffusion", "rdm", steps=99)
    assert decode(page, SOURCE) == long  # the browser itself does not send a value out of range
    assert page.execute_script("return document.querySelector('[data-key=steps]').validationMessage")
    assert {entry["message"].split(" - ")[1][:23] for entry in page.get_log("browser")} == {"Failed to load resource"}


def test_page_says_that_it_waits(page: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, original = threading.Event(), decoding_request.DecodingRequest.answer

    def blocked(request: decoding_request.DecodingRequest) -> object:
        gate.wait(20)
        return original(request)

    monkeypatch.setattr(decoding_request.DecodingRequest, "answer", blocked)
    page.find_element(By.ID, "text").send_keys(SOURCE, Keys.ENTER)
    expected = ["decoding …", "waiting: 1 decoding is before this one"]
    WebDriverWait(page, 20).until(lambda _: sorted(each.text for each in all_of(page, ".status")) == expected)
    gate.set()
    wait_for_results(page)
    assert len(all_of(page, ".view article")) == 2


@pytest.mark.parametrize("evil", [EVIL, EVIL_ATTRIBUTE])
def test_markup_in_text_is_not_interpreted(page: webdriver.Chrome, evil: str, address: str) -> None:
    """As source, as text around a blank, in an error and in a link; the fixture checks that no script has run."""
    decode(page, evil)
    field = all_of(page, ".fill textarea")[0]
    field.clear()
    field.send_keys(f"{evil} _", Keys.ENTER)
    wait_for_results(page)
    assert all_of(page, ".fill textarea")[0].get_attribute("value").startswith(evil)
    assert page.find_element(By.CSS_SELECTOR, ".view .output").text.startswith(evil)
    page.find_element(By.ID, "copy").click()  # writes the address at once
    open_page(page, page.current_url)
    assert page.find_element(By.ID, "text").get_attribute("value") == evil
    open_page(page, f"{address}#a.model={evil}")
    assert page.find_element(By.ID, "note").text == f"not here, though in the link: model {evil}"
    assert all_of(page, "img, body script") == []


def test_link_restores_the_settings(page: webdriver.Chrome) -> None:
    """Text, seed, models, strategies, values and the text with blanks; nothing of it is sent to the server."""
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    choose(page, 0, "diffusion", "rdm_commit", steps=3, temperature=0.5)
    choose(page, 1, "ar", "greedy", length_penalty=-0.5)
    page.find_element(By.ID, "seed").clear()
    page.find_element(By.ID, "seed").send_keys("12")
    text = f"{SOURCE} & = # ü"
    decode(page, text)
    all_of(page, ".fill textarea")[0].clear()
    all_of(page, ".fill textarea")[0].send_keys("one _ & more #")
    fields = """
        const selector = "select, #ask textarea, #ask input, .fill:not([hidden]) textarea";
        return [...document.querySelectorAll(selector)].map((field) => field.value);
    """
    WebDriverWait(page, 20).until(lambda _: "more" in page.current_url)  # changes after a moment
    before, link = page.execute_script(fields), page.current_url
    assert urlsplit(link).query == ""
    values = parse_qs(urlsplit(link).fragment)
    assert (values["a.steps"], values["b.length_penalty"], values["seed"]) == (["3"], ["-0.5"], ["12"])
    open_page(page, link)
    assert page.execute_script(fields) == before
    assert {text, "one _ & more #", "rdm_commit", "greedy", "3", "0.5", "-0.5", "12"} <= set(before)
    page.find_element(By.ID, "copy").click()
    WebDriverWait(page, 20).until(lambda _: page.find_element(By.ID, "note").text == "copied")
    assert page.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == link


def test_long_sentence_fits_narrow_screens_in_light_and_dark(page: webdriver.Chrome) -> None:
    """Sixty tokens, in both views: no element overflows, and the controls are in the window."""
    choose(page, 0, "diffusion", "rdm", steps=2)
    choose(page, 1, "ar", "greedy")
    decode(page, "x " * 30)  # two tokens each
    field = all_of(page, ".fill textarea")[0]
    field.clear()
    field.send_keys("_ " * 60, Keys.ENTER)
    wait_for_results(page)
    assert len(shown_tokens(page, 0)) == 60
    for width, scheme in ((320, "light"), (390, "dark"), (1280, "dark")):
        set_screen(page, width, scheme)
        for _ in range(2):
            assert max(right_edges(page)) <= width
            page.find_element(By.ID, "all").click()
        background = page.execute_script("return getComputedStyle(document.querySelector('textarea')).backgroundColor")
        assert (int(background.removeprefix("rgb(").split(",")[0]) < 60) == (scheme == "dark")
