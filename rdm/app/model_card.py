"""The model card of an exported model: front matter for the Hub, and a page generated from the records of the run."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from rdm.app.choices import CONF
from rdm.app.model import Model
from rdm.app.portable import without_paths
from rdm.app.training_runs import read_training_runs
from rdm.evaluation.curves import METRICS_FILE, draw_curves
from rdm.evaluation.figures import draw_iterations
from rdm.evaluation.grouping import group_by_data
from rdm.evaluation.hypotheses import read_hypotheses
from rdm.evaluation.markup import markdown
from rdm.evaluation.results import Row, read_lines
from rdm.evaluation.settings import metric_value
from rdm.evaluation.tables import caption, check_rows, iterations_table, metrics_of

SHOWN_EXAMPLES = 5
LICENCE = re.compile(r"^- Licence: (?P<text>.+(?:\n  .+)*)", re.MULTILINE)
"""The line of a data card that states the licence."""
CREATIVE_COMMONS = re.compile(r"\bCC (?P<terms>BY(?:-[A-Z]{2})*) (?P<version>\d\.\d)\b")
LANGUAGE = re.compile(r"[a-z]{2}")
COST_ROWS = {"parameters": "parameters", "steps": "steps", "target_tokens": "target tokens"}


def model_card(model: Model, config: DictConfig, cost: dict[str, Any], figures: Path, name: str) -> str:
    """Return the text of ``README.md``, and draw its figures.

    Args:
        model: the model, loaded from its run.
        config: its configuration without paths.
        cost: its training cost, with overrides without paths.
        figures: folder of the figures, beside the card.
        name: what the usage example loads.
    """
    rows = own_rows(model)
    licence = data_licence(model.run.full_config)
    examples, heading = example_outputs(model, rows)
    source = quoted(examples[0][0] if examples else "...")
    trust = trusted_packages_of(model)
    trusting = f", trust={quoted(trust[0]) if len(trust) == 1 else json.dumps(trust)}" if trust else ""
    usage = f"import rdm\nmodel = rdm.load({quoted(name)}{trusting})\nprint(model.generate([{source}])[0].text)"
    sections = [
        front_matter(config, rows, licence),
        f"# {model.name} on {config.data.name}",
        f"A text generation model trained with `rdm`, at step {cost['steps']:,}"
        + (f"; the mean of the weights of {model.average} checkpoints." if model.average > 1 else "."),
        f"```python\n{usage}\n```",
        "`rdm.load` takes this folder wherever it is, or the id of this page on the Hub. Nothing in it is executed"
        + (f"; the classes of {', '.join(trust)} that it names must be installed." if trust else "."),
        *results_sections(rows, figures),
        *examples_section(examples, heading),
        f"## Decoding\n\nThe default; other strategies: `model.generate(texts, decoding=...)`.\n\n{decoding(config)}",
        f"## Data\n\n{data_section(config, licence)}",
        f"## Training\n\n{training_section(model, cost)}",
        *curves_section(model, figures),
    ]
    return "\n\n".join(sections) + "\n"


def quoted(text: str) -> str:
    """A text as a string of Python or JSON."""
    return json.dumps(text, ensure_ascii=False)


def trusted_packages_of(model: Model) -> list[str]:
    """The packages besides ``rdm`` whose classes the configuration names."""
    text = OmegaConf.to_yaml(model.run.config)
    return [package for package in model.run.trust if f"_target_: {package}." in text]


def own_rows(model: Model) -> list[Row]:
    """The result rows of the run that were measured with these weights."""
    file = model.run.folder / "results.jsonl"
    rows = read_lines(file, "a result row") if file.is_file() else []
    check_rows(rows)
    weights = (model.cost["steps"], model.average, False)
    measured = [(row.get("checkpoint_step"), row.get("average", 1), row.get("int8", False)) for row in rows]
    return [row for row, own in zip(rows, measured, strict=True) if own == weights]


def front_matter(config: DictConfig, rows: Sequence[Row], licence: str | None) -> str:
    """The metadata that the Hub uses to display and find the model."""
    data = OmegaConf.to_container(config.data, resolve=False)
    assert isinstance(data, dict)
    sides = [data.get(side) for side in ("source", "target")]
    languages = [side for side in sides if isinstance(side, str) and LANGUAGE.fullmatch(side)]
    metrics = metrics_of(rows)
    entries: dict[str, Any] = {
        "library_name": "rdm",
        "tags": ["text-generation", "discrete-diffusion", str(config.name)],
        **({"language": languages} if len(languages) == 2 else {}),
        **({} if licence is None else {"license": licence_id(licence)}),
        **({"metrics": metrics} if metrics else {}),
    }
    results = [
        {
            "task": {"type": "text-generation"},
            "dataset": {"name": group[0]["data"], "type": group[0]["data"], "split": group[0]["split"]},
            "metrics": [entry for metric in metrics if (entry := last_value(group, metric)) is not None],
        }
        for group in group_by_data(rows).values()
    ]
    if results:
        entries["model-index"] = [{"name": f"{config.name} on {config.data.name}", "results": results}]
    return f"---\n{yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)}---"


def last_value(rows: Sequence[Row], metric: str) -> dict[str, Any] | None:
    """The last value of a metric with the decoding that gave it; None if no row has one."""
    measured = [row for row in rows if metric_value(row, metric) is not None]
    if not measured:
        return None
    row = measured[-1]
    how = row["strategy"] if row.get("steps") is None else f"{row['strategy']}, {row['steps']} iterations"
    return {"type": metric, "value": metric_value(row, metric), "name": f"{metric}, {how}"}


def results_sections(rows: Sequence[Row], figures: Path) -> list[str]:
    """Tables of all metrics with their signatures, and a figure where there are several numbers of iterations."""
    sections = []
    groups = group_by_data(rows)
    for number, (data, group) in enumerate(groups.items()):
        sections.append(f"## Results on {data}")
        for metric in metrics_of(group):
            table = markdown(*iterations_table(group, metric))
            sections.append(without_paths(f"**{metric}**\n\n{table}\n\n{caption(group, metric)}"))
        suffix = f"_{number + 1}" if len(groups) > 1 else ""
        sections += images(draw_iterations(group, metrics_of(group)[0], figures, suffix))
    return sections


def example_outputs(model: Model, rows: Sequence[Row]) -> tuple[list[tuple[str, str, str]], str]:
    """Source, reference and output of a few examples, and where they are from."""
    for row in reversed(rows):
        file = model.run.folder / "hypotheses" / Path(row.get("hypotheses", "")).name
        if file.is_file():
            lines = read_hypotheses(file)[:SHOWN_EXAMPLES]
            how = row["strategy"] if row.get("steps") is None else f"{row['strategy']}, {row['steps']} iterations"
            shown = [(line["source"], line["references"][0], line["hypothesis"]) for line in lines]
            return shown, f"The first sentences of the {row['split']} split, decoded with {how}."
    files = sorted((model.run.folder / "samples").glob("step_*.md"))
    files = [file for file in files if int(file.stem.removeprefix("step_")) <= model.cost["steps"]]
    if not files:
        return [], ""
    step = int(files[-1].stem.removeprefix("step_"))
    return samples_table(files[-1]), f"Sentences of the validation split, as decoded in training at step {step:,}."


def samples_table(file: Path) -> list[tuple[str, str, str]]:
    """The rows of the table in a file of validation samples."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.replace(r"\|", "|") for cell in re.split(r"(?<!\\) \| ", line[2:-2])] for line in lines[2:]]
    return [(cell[0], cell[1], cell[2]) for cell in cells if len(cell) == 3]


def examples_section(examples: Sequence[tuple[str, str, str]], heading: str) -> list[str]:
    """A table of sources, references and outputs."""
    if not examples:
        return []
    # A text such as "<unk>" would be taken for HTML.
    cells = [[html.escape(text, quote=False) for text in example] for example in examples]
    return [f"## Examples\n\n{heading}\n\n{markdown(['source', 'reference', 'output'], cells)}"]


def decoding(config: DictConfig) -> str:
    """The decoding of the run as YAML."""
    node = OmegaConf.to_container(config.decoding, resolve=True)
    return f"```yaml\n{yaml.safe_dump(node, sort_keys=False)}```"


def data_section(config: DictConfig, licence: str | None) -> str:
    """The data set and its licence."""
    stated = "No card of this data set states a licence." if licence is None else f"Licence of the data: {licence}"
    return f"`data={config.data.name}`. {stated}"


def training_section(model: Model, cost: dict[str, Any]) -> str:
    """How the model was trained: cost, machine, commit, versions, command."""
    record = model.run.record()
    facts = [[label, f"{cost[key]:,}"] for key, label in COST_ROWS.items() if key in cost]
    if "seconds" in cost:
        facts.append(["minutes", f"{cost['seconds'] / 60:.1f}"])
    if "machine" in cost:
        facts.append(["machine", cost["machine"]])
    facts.append(["commit", record.get("commit") or "not recorded"])
    facts += [[name, value] for name, value in (record.get("versions") or {}).items()]
    command = f"    python train.py {' '.join(cost['overrides'])}".rstrip()
    return f"{markdown(['', ''], facts)}\n\n{command}"


def curves_section(model: Model, figures: Path) -> list[str]:
    """The learning curves of the run."""
    if not (model.run.folder / METRICS_FILE).is_file():
        return []
    return ["## Learning curves", *images(draw_curves(read_training_runs([model.run.folder]), figures))]


def images(files: Sequence[Path]) -> list[str]:
    """Markdown images of the PNG files, with paths relative to the card."""
    return [f"![{file.stem}]({file.parent.name}/{file.name})" for file in files if file.suffix == ".png"]


def data_licence(config: DictConfig) -> str | None:
    """The licence that the card of the data states: ``<data.root>/card.md`` or ``data/<name>.card.md``."""
    root = OmegaConf.select(config, "data.root")
    cards = [CONF.parent / "data" / f"{config.data.name}.card.md"]
    cards = [Path(root) / "card.md", *cards] if isinstance(root, str) else cards
    for card in cards:
        found = LICENCE.search(card.read_text(encoding="utf-8")) if card.is_file() else None
        if found:
            return " ".join(found["text"].split())
    return None


def licence_id(licence: str) -> str:
    """The Hub's identifier of a licence.

    >>> licence_id("CC BY-NC-ND 4.0, as TED states for its talks."), licence_id("differs by part")
    ('cc-by-nc-nd-4.0', 'other')
    """
    found = CREATIVE_COMMONS.search(licence)
    return f"cc-{found['terms'].lower()}-{found['version']}" if found else "other"
