"""The answers of the server, without a browser."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from rdm.page.page import render_trajectory
from rdm.playground import decoding_request
from rdm.playground.decoding_request import MAX_CHARACTERS
from rdm.playground.server import FILES, MAX_BYTES
from tests.page.helpers import EVIL, EVIL_ATTRIBUTE
from tests.playground.helpers import KINDS, PROMPT, SOURCE, ask, client, offer

PROMPTS = {"lm": PROMPT, "ar_lm": PROMPT}
FIRST, SECOND = PROMPT.split()


@pytest.fixture(scope="module")
def browser() -> TestClient:
    return client(*KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_is_that_of_the_python_api(browser: TestClient, kind: str) -> None:
    """The same view, text and network calls, for models of every kind."""
    text = PROMPTS.get(kind, SOURCE)
    started, done = ask(browser, kind, text, seed=3)
    (expected,) = offer(kind).model.generate([text], seed=3, nbest=None, trace=True)
    assert expected.trace is not None
    assert started == {"state": "decoding"}
    assert (done["state"], done["model"], done["calls"]) == ("done", kind, expected.calls)
    assert done["html"] == render_trajectory(expected.trace, text)
    assert done["text"] == (f"{text} {expected.text}" if kind in PROMPTS else expected.text)


def test_settings_and_strategy_are_applied(browser: TestClient) -> None:
    options = {"steps": 3, "temperature": 0.7, "length_candidates": 2}
    done = ask(browser, "diffusion", decoding="rdm_commit", options=options, seed=5)[-1]
    (expected,) = offer("diffusion").model.generate([SOURCE], "rdm_commit", seed=5, **options)
    assert (done["text"], done["calls"]) == (expected.text, 3)
    assert done["html"].count('<li class="step"') == 4
    assert ask(browser, "lm", PROMPT, decoding="threshold")[-1]["state"] == "done"  # refused without its option


def test_filling_keeps_what_is_not_blank(browser: TestClient) -> None:
    done = ask(browser, "diffusion", template="situ _ pisu", seed=2)[-1]
    (expected,) = offer("diffusion").model.fill("situ _ pisu", SOURCE, seed=2)
    assert done["text"] == expected.text
    assert done["text"].startswith("situ")
    assert done["text"].endswith("pisu")
    words = ask(browser, "lm", "", template=f"{FIRST} _ {SECOND}")[-1]["text"].split()
    assert (words[0], words[-1]) == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "  "}, "the source is empty: type a text"),
        ({"model": "lm", "text": ""}, "the prompt is empty: type a text"),
        ({"text": "a " * 70}, r"source 1 has \d+ tokens; 1 to 63 fit"),
        ({"model": "lm", "text": "situ " * 64}, "prompt 1 has 64 tokens; 1 to 63 fit"),
        ({"text": "a" * (MAX_CHARACTERS + 1)}, f"up to {MAX_CHARACTERS} fit"),
        ({"text": 7}, "text: a text is needed"),
        ({"model": "nobody"}, "there is no model nobody; there are diffusion, ar"),
        ({"decoding": "nothing"}, "decoding=nothing does not fit diffusion; these do: as_trained, ancestral"),
        ({"decoding": "beam"}, "decoding=beam does not fit diffusion"),
        ({"model": "ar", "decoding": "rdm"}, "decoding=rdm does not fit ar; these do: as_trained, beam, greedy"),
        ({"options": {"steps": 51}}, "iterations must lie between 1 and 50, got 51"),
        ({"options": {"steps": "${oc.env:HOME}"}}, "iterations: an integer is needed"),
        ({"options": {"_target_": 1}}, "_target_: decoding=as_trained has no such setting here"),
        ({"model": "lm", "options": {"length_candidates": 2}}, "length_candidates: decoding=as_trained has no such"),
        ({"options": []}, "options: a JSON object is needed"),
        ({"seed": -1}, "seed must be an integer between 0 and 4294967295"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"colour": "red"}, "colour: there is no such field"),
        ({"template": "no blank"}, "no blank in 'no blank'; write _ for every token to be filled"),
        ({"template": " "}, "the text with blanks is empty"),
        ({"template": "_ " * 70}, "70 tokens are too many; up to 63 fit"),
        ({"template": "_", "text": ""}, "the source is empty: the model reads it to fill the blanks"),
        ({"model": "ar", "template": "_"}, "ar cannot fill blanks"),
        ({"model": "lm", "template": "unknown _"}, "has a word that is not in the vocabulary of the model"),
    ],
)
def test_bad_input_is_answered_in_words(browser: TestClient, fields: dict[str, Any], message: str) -> None:
    response = browser.post("/decode", json={"model": "diffusion", "decoding": "as_trained", "text": SOURCE, **fields})
    assert response.status_code == 400
    assert re.search(message, response.json()["error"])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the request is not valid JSON"),
        (b"\xff", 400, "the request is not valid JSON"),
        (b"[" * 100_000, 400, "the request is not valid JSON"),
        (b'{"seed": NaN}', 400, "the request is not valid JSON"),
        (rb'{"model": "\ud800"}', 400, "the request is not valid JSON"),
        (b"[]", 400, "the request is not a JSON object"),
        (b" " * (MAX_BYTES + 1), 413, "the request is too large: up to 200,000 bytes are read"),
    ],
)
def test_bodies_that_are_no_request(browser: TestClient, body: bytes, status: int, message: str) -> None:
    response = browser.post("/decode", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()) == (status, {"error": message})


def test_markup_is_escaped(browser: TestClient) -> None:
    """In tokens, titles and outputs: as source, and as text around a blank."""
    for evil in (EVIL, EVIL_ATTRIBUTE):
        html = ask(browser, "diffusion", evil, template=f"{evil} _")[-1]["html"]
        assert "&lt;" in html
        assert not re.search(r"<(script|img)|\son\w+=['\"]", html)
        assert " style=" not in html  # the Content-Security-Policy forbids it


def test_every_answer_has_the_security_headers(browser: TestClient) -> None:
    for path in ("/", "/models", *FILES, "/nowhere", "/decode"):
        response = browser.get(path)
        assert response.status_code == {"/nowhere": 404, "/decode": 405}.get(path, 200)
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
    assert not re.search(r"https?:|//|\sstyle=|\son\w+=|<script>", browser.get("/").text)


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"host": "evil.example:8765"}, 403, "the host evil.example:8765 is not this server"),
        ({"host": "127.0.0.1.evil.example"}, 403, "is not this server"),
        ({"host": ""}, 403, "is not this server"),
        ({"origin": "http://evil.example"}, 403, "only the page of this server may ask for decodings"),
        ({"origin": "http://127.0.0.1:9999"}, 403, "only the page of this server"),
        ({"origin": "null"}, 403, "only the page of this server"),
        ({"content-type": "text/plain"}, 415, "the request must be JSON"),
        ({"host": "localhost:8765", "origin": "http://localhost:8765"}, 200, ""),
        ({"host": "[::1]:8765", "origin": "http://[::1]:8765"}, 200, ""),
        ({"content-type": "application/json; charset=utf-8"}, 200, ""),
    ],
)
def test_requests_of_other_sites_are_refused(
    browser: TestClient, headers: dict[str, str], status: int, message: str
) -> None:
    body = b'{"model": "ar", "decoding": "greedy", "text": "situ"}'
    response = browser.post("/decode", content=body, headers={"content-type": "application/json", **headers})
    assert response.status_code == status
    assert message in response.text
    if "host" in headers:
        assert browser.get("/models", headers={"host": headers["host"]}).status_code == status


def test_missing_origin_is_refused_and_another_host_can_be_named() -> None:
    named = client("ar", host="Models.example")
    assert named.get("/models", headers={"host": "models.EXAMPLE:8765"}).status_code == 200
    del named.headers["origin"]
    assert named.post("/decode", json={}).status_code == 403


def test_requests_wait_and_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wait for the first, and the next is answered with 503."""
    gate, original = threading.Event(), decoding_request.DecodingRequest.answer

    def blocked(request: decoding_request.DecodingRequest) -> dict[str, Any]:
        gate.wait(20)
        return original(request)

    monkeypatch.setattr(decoding_request.DecodingRequest, "answer", blocked)
    body = {"model": "ar", "decoding": "greedy", "text": SOURCE}
    with client("ar") as shared, ThreadPoolExecutor(4) as threads:  # one event loop
        queue = shared.app.state.queue  # type: ignore[attr-defined]
        answers = [threads.submit(shared.post, "/decode", json=body) for _ in range(3)]
        while len(queue) < 3:
            time.sleep(0.01)
        refused = shared.post("/decode", json=body)
        gate.set()
        lines = [[json.loads(line) for line in answer.result().text.splitlines()] for answer in answers]
    assert refused.status_code == 503
    assert refused.json() == {"error": "2 decodings are waiting already: try again later"}
    states = [[(state["state"], state.get("ahead")) for state in answer] for answer in lines]
    started, done, one, two = ("decoding", None), ("done", None), ("waiting", 1), ("waiting", 2)
    assert sorted(states, key=len) == [[started, done], [one, started, done], [two, one, started, done]]


def test_failure_of_a_decoding_is_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A bug is explained on the terminal, not on the page, and the next request is answered."""
    with monkeypatch.context() as patch:
        patch.setattr(decoding_request, "render_trajectory", lambda *_: 1 // 0)
        states = ask(client("ar"), "ar")
    assert states[-1] == {"state": "failed", "error": "the decoding failed; the terminal of the server shows why"}
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert ask(client("ar"), "ar")[-1]["state"] == "done"
