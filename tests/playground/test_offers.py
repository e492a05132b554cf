"""What models can do on the page."""

from functools import cache

import pytest

from rdm.app.choices import choices
from rdm.errors import UserError
from rdm.playground.offers import Offer, Setting, comment, make_offer
from tests.playground.helpers import KINDS, SOURCE, untrained


@cache
def offer(kind: str) -> Offer:
    return make_offer(kind, untrained(kind))


@pytest.mark.slow
def test_offered_decodings_are_those_the_model_accepts() -> None:
    for kind in KINDS:
        assert offer(kind).strategies[0].name == "as_trained"
    names = {kind: {strategy.name for strategy in offer(kind).strategies} for kind in KINDS}
    assert {"rdm", "vanilla", "threshold", "mbr"} <= names["diffusion"]
    assert {"rdm", "open_ended", "threshold"} <= names["lm"]
    assert "mbr" not in names["lm"]  # ten samples
    assert names["ar"] == {"as_trained", "beam", "greedy"}
    assert names["ar_lm"] == {"as_trained", "left_to_right"}
    for kind, name in (("diffusion", "beam"), ("ar", "rdm"), ("ar_lm", "greedy"), ("lm", "mbr")):
        with pytest.raises(UserError):
            offer(kind).model.choose_decoding(name)


def test_settings_end_where_the_model_refuses() -> None:
    """One more than the largest offered value is refused; open-ended text has no lengths to set."""
    found = {kind: {each.key: each for each in offer(kind).strategies[0].settings} for kind in KINDS}
    for kind in ("diffusion", "lm"):
        model, steps = offer(kind).model, found[kind]["steps"]
        assert model.choose_decoding(None, None, {"steps": int(steps.maximum)}).steps == steps.maximum
        with pytest.raises(UserError):
            model.choose_decoding(None, None, {"steps": int(steps.maximum) + 1})
    assert found["diffusion"]["length_candidates"].maximum == 63
    assert "length_candidates" not in found["lm"]
    assert found["ar"].keys() == {"beam_size", "length_penalty"}
    assert found["ar_lm"].keys() == {"temperature", "top_p", "max_tokens"}
    assert "transition.gumbel_scale" in found["diffusion"]


def test_filling_is_offered_by_models_that_can() -> None:
    assert {kind for kind in KINDS if offer(kind).fills} == {"diffusion", "lm"}
    with pytest.raises(UserError, match="cannot fill blanks"):
        offer("ar").model.fill("_", SOURCE)
    assert {kind: offer(kind).reads for kind in ("ar", "lm")} == {"ar": "source", "lm": "prompt"}


def test_values_out_of_range_are_refused() -> None:
    steps, temperature = Setting("steps", "iterations", 1, 1, 50, 1), Setting("t", "temperature", 0, 0, 10, 0.1)
    for accepted in (1, 50):
        steps.check(accepted)
    temperature.check(0.5)
    for setting, value in [(steps, 0), (steps, 51), (steps, 1.5), (steps, "2"), (steps, True), (steps, None)]:
        with pytest.raises(UserError, match=r"^iterations"):
            setting.check(value)
    with pytest.raises(UserError, match="temperature must lie between 0 and 10, got nan"):
        temperature.check(float("nan"))


def test_comment_is_the_first_sentence_of_the_file() -> None:
    assert comment("as_trained") == "The decoding saved with the run."
    assert all(comment(name).endswith((".", ":")) for name in choices("decoding"))
