"""Untrained models of every kind, as the playground offers them."""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from starlette.testclient import TestClient

from rdm.app.composition import compose_config
from rdm.app.model import Model
from rdm.app.run_folder import RunFolder, to_yaml
from rdm.data.toy_language import ToyLanguage
from rdm.playground.decoding_queue import DecodingQueue
from rdm.playground.offers import Offer, can_fill, fitting
from rdm.playground.server import create_app
from tests.builders import CACHE

SMALL = ("model.dim=32", "model.hidden=32", "data.corpus.train_size=200")
TEXT = ("model=llama_tiny", "data=toy_text")
KINDS = {
    "diffusion": ("data/tokenizer=bpe", "data.tokenizer.size=400"),  # bytes: any text is encoded without loss
    "ar": ("system=ar",),
    "lm": ("system=lm", *TEXT),
    "ar_lm": ("system=ar_lm", *TEXT),
}
SOURCE = ToyLanguage().pairs(1, 3)[0][0]
PROMPT = "the dog"
ADDRESS = "http://127.0.0.1:8765"


STRATEGIES = {
    "diffusion": ("as_trained", "ancestral", "rdm", "rdm_commit"),
    "ar": ("as_trained", "beam", "greedy"),
    "lm": ("as_trained", "open_ended", "threshold"),
    "ar_lm": ("as_trained",),
}
"""Decodings offered in tests; to try all of them takes seconds."""


@cache
def offer(kind: str) -> Offer:
    """Some of what an untrained model can do."""
    model = untrained(kind)
    strategies = [strategy for name in STRATEGIES[kind] for strategy in fitting(model, name)]
    return Offer(kind, model, strategies, can_fill(model, strategies[0]))


@cache
def untrained(kind: str) -> Model:
    """A model of one of the kinds with random weights."""
    folder = Path(CACHE) / "playground" / kind
    folder.mkdir(parents=True)
    config = compose_config("train", [*SMALL, *KINDS[kind]])
    config.run_dir = str(folder)
    data = instantiate(config.data.module)
    config.vocab = {**config.vocab, **asdict(data.codec.vocab)}
    torch.manual_seed(0)
    system = instantiate(config.system)
    (folder / "config.yaml").write_text(to_yaml(config))
    return Model(RunFolder(folder), system.eval(), data.codec, {"parameters": 0, "steps": 0})


def client(*kinds: str, **options: Any) -> TestClient:
    """A client of a playground with these models."""
    app = create_app([offer(kind) for kind in kinds], DecodingQueue(limit=2), **options)
    return TestClient(app, ADDRESS, headers={"origin": ADDRESS})


def ask(browser: TestClient, kind: str, text: str = SOURCE, **fields: Any) -> list[dict[str, Any]]:
    """Decode and return the states that the server reports."""
    response = browser.post("/decode", json={"model": kind, "decoding": "as_trained", "text": text, **fields})
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]
