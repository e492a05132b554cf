"""``python docs/build/decoders.py``: writes the tables of decoders (``PAGES``) from the rows in results/."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from rdm.app.choices import choices
from rdm.app.composition import compose_config
from rdm.describe import flatten
from rdm.systems.rescoring import TeacherScore

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "docs" / "decoding.md", ROOT / "docs" / "results" / "decoders.md")
NOISES = {"rdm_absorbing": "mask noise", "rdm_multinomial": "uniform noise"}
PARTS = {"test": ("test", 2_001), "valid": ("valid", 500), "whole valid": ("valid", 2_000)}
"""Split and number of sentences of the tables."""
GROUPS = {"schedule": "schedule", "selection": "selection", "transition.score": "ranking"}
"""Config groups by the key of the decoding that they set."""
HEAD = "| overrides of `evaluate.py` | calls | tokens/call | sacreBLEU | chrF |\n| --- | --- | --- | --- | --- |\n"


SPEED_HEAD = (
    "| noise | overrides of `evaluate.py` | calls | sacreBLEU | sentences/s, batch 1 | batch 32 |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)
PRESETS = {
    "decoding=fast": "decoding=entropy_bound decoding.transition.gamma=2.0 decoding.steps=10",
    "decoding=best": "decoding=factor selection=length_aware decoding.steps=10",
}
"""What a preset is called in ``results/tatoeba_decoders.jsonl``."""
RANKINGS = {
    "Confidence": "confidence",
    "NegativeEntropy": "entropy",
    "Margin": "margin",
    "LeftToRight": "left_to_right",
}
OPEN_ENDED_HEAD = "| overrides of `evaluate.py` | iterations | Diversity | token entropy |\n| --- | --- | --- | --- |\n"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of ``results/<name>.jsonl``."""
    return [json.loads(line) for line in (ROOT / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@cache
def composed(*overrides: str) -> dict[str, Any]:
    """All settings of a decoding that is composed from ``conf/``."""
    return dict(flatten(instantiate(compose_config("train", list(overrides)).decoding).describe()))


def overrides(row: dict[str, Any]) -> str:
    """What to type for the decoding of ``row``: the difference to the configuration of its strategy."""
    diffusion, settings = f"diffusion={row['system']}", dict(flatten(row["decoding"]))
    typed, rescored = [f"decoding={row['strategy']}"], settings.get("selection") == TeacherScore.__name__
    if rescored:
        settings = {key: value for key, value in settings.items() if not key.startswith("selection")}
    for key, group in GROUPS.items():
        if key in settings and settings[key] != composed(diffusion, *typed).get(key):
            options = [[*typed, f"{group}={choice}"] for choice in choices(group)]
            typed = next(option for option in options if composed(diffusion, *option).get(key) == settings[key])
    defaults = composed(diffusion, *typed)
    different = [key for key, value in defaults.items() if key in settings and settings[key] != value]
    typed += [f"decoding.{key}={value_of_override(settings[key])}" for key in different]
    return " ".join([*typed, *(["rescore=<ar run>"] if rescored else []), f"decoding.steps={row['steps']}"])


def value_of_override(value: Any) -> str:
    """A setting as it is typed."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def alone(row: dict[str, Any]) -> bool:
    """Whether a row is of a method without wrappers (blocks, caches, early ends, guidance, search), five candidates."""
    decoding = row["decoding"]
    wrapped = any(decoding.get(key) is not None for key in ("block", "token_cache", "stop_on_convergence", "search"))
    return not wrapped and decoding.get("guidance", 1.0) == 1.0 and row["candidates"] == 5


def line(row: dict[str, Any]) -> str:
    """One line of a table."""
    scores = (row["metrics"][name]["value"] for name in ("sacrebleu", "chrf"))
    tokens = f"{row['tokens_per_call']:.2f}" if "tokens_per_call" in row else ""
    cells = [f"`{overrides(row)}`", calls(row), tokens, *(f"{score:.2f}" for score in scores)]
    return f"| {' | '.join(cells)} |\n"


def calls(row: dict[str, Any]) -> str:
    """Network calls for a candidate; in brackets where only those of the returned one were counted."""
    return (
        f"{row['calls_per_sentence']:.2f}" if "calls_per_sentence" in row else f"({row['calls_of_returned_text']:.2f})"
    )


def open_ended_line(row: dict[str, Any]) -> str:
    """One line of the table of language models."""
    strategy = {"rdm": "open_ended", "vanilla": "open_ended_vanilla"}.get(row["strategy"], row["strategy"])
    transition = row["decoding"]["transition"]
    ranking = RANKINGS[(transition.get("score") or {"class": "Confidence"})["class"]]
    options = [f"decoding={strategy}", *([] if row["strategy"] == "vanilla" else [f"ranking={ranking}"])]
    if transition.get("gumbel_scale"):
        options.append(f"decoding.transition.gumbel_scale={transition['gumbel_scale']:g}")
    scores = (row["metrics"][name]["value"] for name in ("diversity", "token_entropy"))
    return f"| `{' '.join(options)}` | {row['steps']} | " + " | ".join(f"{score:.2f}" for score in scores) + " |\n"


def test_row(speed: dict[str, Any]) -> dict[str, Any]:
    """The row of the test set for a row of ``results/tatoeba_decoders_speed.jsonl``."""
    wanted = PRESETS.get(speed["overrides"], speed["overrides"])
    (found,) = [
        row
        for row in rows("tatoeba_decoders")
        if (row["split"], row["system"]) == ("test", speed["system"])
        and sorted(overrides(row).split()) == sorted(wanted.split())
    ]
    return found


def speed_line(speed: dict[str, Any]) -> str:
    """One line of the table of speeds."""
    row, seconds = test_row(speed), speed["sentences_per_cpu_second"]
    numbers = (f"{each:.2f}" for each in (row["metrics"]["sacrebleu"]["value"], seconds["1"], seconds["32"]))
    cells = [NOISES[row["system"]], f"`{speed['overrides']}`", calls(row), *numbers]
    return f"| {' | '.join(cells)} |\n"


def calls_then_bleu(row: dict[str, Any]) -> tuple[float, float]:
    """Sorts rows by calls, and those with equal calls from the best to the worst."""
    return float(calls(row).strip("()")), -row["metrics"]["sacrebleu"]["value"]


def tables() -> Iterator[tuple[str, str]]:
    """The name and the text of every table: each part of the data and noise, by calls."""
    for name, part in PARTS.items():
        for system in NOISES:
            chosen = [
                row
                for row in rows("tatoeba_decoders")
                if (row["split"], row["sentences"]) == part and row["system"] == system
            ]
            if chosen:
                yield f"{name} {system}", HEAD + "".join(map(line, sorted(chosen, key=calls_then_bleu)))
    yield "speed", SPEED_HEAD + "".join(map(speed_line, rows("tatoeba_decoders_speed")))
    yield "wikitext2", OPEN_ENDED_HEAD + "".join(map(open_ended_line, rows("wikitext2_unk")))


def with_tables(page: str) -> str:
    """The page with the tables for which it has a pair of comments."""
    for name, table in tables():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        if begin in page:
            head, rest = page.split(begin)
            page = head + begin + table + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
