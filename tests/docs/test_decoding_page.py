"""docs/decoding.md names every decoding of conf/, and its numbers are those of the result rows."""

import sys

import pytest

from rdm.evaluation.settings import decoding_settings
from tests.scripts import ROOT

sys.path.insert(0, str(ROOT / "docs" / "build"))
PAGE = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
OTHER_SYSTEMS = {"beam", "greedy", "left_to_right", "diffuseq", "diffuseq_ddim", "diffuseq_mbr"}
PROTOCOLS = {"as_trained", "mbr", "vanilla_mbr", "open_ended", "open_ended_vanilla"}  # options, not methods
CHOICES = {file.stem for file in (ROOT / "conf" / "decoding").glob("[!_]*.yaml")} - OTHER_SYSTEMS - PROTOCOLS


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_every_choice_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`decoding={name}`" in PAGE


def test_tables_are_those_of_the_rows() -> None:
    """Each is on one page. Also what to type: the difference between a row and the configuration of its strategy."""
    import decoders

    pages = [path.read_text(encoding="utf-8") for path in decoders.PAGES]
    for page in pages:
        assert decoders.with_tables(page) == page, "run python docs/build/decoders.py"
    for name, _ in decoders.tables():
        assert sum(f"<!-- {name}: begin -->" in page for page in pages) == 1


@pytest.mark.parametrize(
    "typed",
    [
        "decoding=rdm_commit schedule=linear decoding.token_cache=2 decoding.steps=10",
        "decoding=rdm_commit schedule=linear decoding.block=4 decoding.block_cache=true decoding.steps=4",
        "decoding=rdm decoding.stop_on_convergence=1 decoding.steps=10",
        "decoding=rdm decoding.guidance=1.5 decoding.steps=10",
        "decoding=particles decoding.temperature=0.2 decoding.search.scale=3.0 decoding.steps=10",
        "decoding=rdm decoding.temperature=0.5 decoding.length_candidates=1 decoding.samples=4 decoding.steps=10",
        "decoding=p2 selection=length_aware ranking=margin decoding.transition.eta=2.0 decoding.steps=20",
    ],
)
def test_overrides_of_a_row(typed: str) -> None:
    """What a row records, wrappers included, becomes again what was typed; figures have rows without wrappers only."""
    import decoders

    config = decoders.compose_config("train", ["diffusion=rdm_absorbing", *typed.split()])
    decoding = decoders.instantiate(config.decoding)
    settings = decoding_settings(decoding.name, decoding.steps, decoding.candidates, decoding.describe())
    row = {"system": "rdm_absorbing", **settings}
    assert decoders.overrides(row) == typed
    assert decoders.alone(row) == typed.startswith("decoding=p2")
    row["decoding"]["selection"] = {"class": "TeacherScore", "run": "outputs/ar"}
    kept = typed.replace("selection=length_aware ", "").removesuffix(f" decoding.steps={row['steps']}")
    assert decoders.overrides(row) == f"{kept} rescore=<ar run> decoding.steps={row['steps']}"
