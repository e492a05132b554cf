"""What the page asks for, checked against what the models offer, and the answer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rdm.decoding.base import Decoding
from rdm.errors import UserError, require
from rdm.page.page import render_trajectory
from rdm.playground.offers import Offer, Strategy

KEYS = {"model", "decoding", "options", "seed", "text", "template"}
MAX_CHARACTERS = 20_000
"""Longer texts are refused before they are tokenized."""


@dataclass(frozen=True)
class DecodingRequest:
    """A text to decode, or a template to fill, with a decoding that fits the model.

    Attributes:
        offer: the model.
        decoding: the strategy with its settings.
        text: the source or prompt; empty for a template without a source.
        template: a text with blanks; None generates a text.
        seed: of the random numbers.
    """

    offer: Offer
    decoding: Decoding
    text: str
    template: str | None
    seed: int

    def answer(self) -> dict[str, Any]:
        """Decode, and return the view of the iterations and what is said about them as JSON data."""
        model, began = self.offer.model, time.perf_counter()
        if self.template is None:
            (output,) = model.generate([self.text], self.decoding, nbest=None, trace=True, seed=self.seed)
        else:
            source = None if model.system.open_ended else self.text
            (output,) = model.fill(self.template, source, self.decoding, trace=True, seed=self.seed)
        assert output.trace is not None
        continued = model.system.open_ended and self.template is None  # the output is what follows the prompt
        return {
            "model": self.offer.name,
            "html": render_trajectory(output.trace, output.source),
            "text": f"{self.text} {output.text}" if continued else output.text,
            "calls": output.calls,
            "seconds": time.perf_counter() - began,
        }


def check_request(body: Any, offers: Mapping[str, Offer]) -> DecodingRequest:
    """The request in the JSON data ``body``; raise :class:`UserError` with what is wrong otherwise."""
    require(isinstance(body, dict), "the request is not a JSON object")
    unknown = ", ".join(sorted(map(str, body.keys() - KEYS)))
    require(not unknown, f"{unknown}: there is no such field")
    offer = offers.get(text_of(body, "model"))
    if offer is None:
        raise UserError(f"model: there is no model {body['model']}; there are {', '.join(offers)}")
    name = text_of(body, "decoding")
    strategy = next((each for each in offer.strategies if each.name == name), None)
    if strategy is None:
        fitting = ", ".join(each.name for each in offer.strategies)
        raise UserError(f"decoding={name} does not fit {offer.name}; these do: {fitting}")
    seed = body.get("seed", 1)
    valid = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32
    require(valid, f"seed must be an integer between 0 and {2**32 - 1}")
    options = check_options(body.get("options", {}), strategy)
    text, template = check_texts(body, offer)
    return DecodingRequest(offer, offer.model.choose_decoding(name, None, options), text, template, seed)


def check_options(given: Any, strategy: Strategy) -> dict[str, Any]:
    """The settings of a decoding: numbers in their ranges, and what the model needs besides."""
    require(isinstance(given, dict), "options: a JSON object is needed")
    known = {setting.key: setting for setting in strategy.settings}
    for key, value in given.items():
        names = ", ".join(known) or "none"
        require(key in known, f"{key}: decoding={strategy.name} has no such setting here; there are {names}")
        known[key].check(value)
    return {**strategy.options, **given}


def check_texts(body: Mapping[str, Any], offer: Offer) -> tuple[str, str | None]:
    """The text and the template, if they are neither empty nor too long for the model."""
    text, codec = text_of(body, "text"), offer.model.codec
    if body.get("template") is None:
        require(bool(text.strip()), f"the {offer.reads} is empty: type a text")
        codec.encode_sources([text])
        return text, None
    template = text_of(body, "template")
    require(offer.fills, f"{offer.name} cannot fill blanks")
    require(bool(template.strip()), "the text with blanks is empty")
    codec.encode_templates([template])
    if not offer.model.system.open_ended:
        require(bool(text.strip()), "the source is empty: the model reads it to fill the blanks")
        codec.encode_sources([text])
    return text, template


def text_of(body: Mapping[str, Any], key: str) -> str:
    """A text of the request."""
    value = body.get(key)
    if not isinstance(value, str):
        raise UserError(f"{key}: a text is needed")
    require(len(value) <= MAX_CHARACTERS, f"{key}: {len(value)} characters are too many; up to {MAX_CHARACTERS} fit")
    return value
