"""What happens when the documentation is built: generated pages, pages outside ``docs``, links, formulas."""

import pkgutil
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]  # also on machines where another copy of rdm is installed

import config_reference  # noqa: E402
import formulas  # noqa: E402

OUTSIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "RESULTS.md", "CODE_OF_CONDUCT.md", "data/*.md")
OUTSIDE_PAGES = ("results/*.html",)
"""Files outside ``docs`` that are part of the site, at the same path."""
WIDE = ("RESULTS.md",)
"""Pages outside ``docs`` with wide tables: shown without the navigation, as ``hide: [navigation]`` does inside."""
API = {
    "decoding": "Samplers, routers, schedules, proposals and the selection of candidates.",
    "diffusion": "Noises, schedules, the process, noised copies, weights and objectives. Plain PyTorch.",
    "models": "Networks.",
    "systems": "What is trained and generates.",
    "evaluation": "Metrics, likelihoods, result rows, tables and figures.",
    "data": "Corpora, tokenizers, the codec, batches and data modules.",
    "training": "The LightningModule, callbacks, optimisers and checkpoints.",
    "page": "The decoding page and the animated picture.",
}
LINK = re.compile(r"(?P<open>!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\])\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"(^[ \t]*```.*?^[ \t]*```)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    groups = [
        {name: f"reference/config/{config_reference.page_name(name)}.md"} for name in config_reference.all_groups()
    ]
    packages = [{f"rdm.{name}": f"reference/api/{name}.md"} for name in API]
    generated = {"CONFIG": ["reference/config/index.md", *groups], "API": ["reference/api/index.md", *packages]}
    config.nav = with_generated(config.nav or [], generated)
    return config


def with_generated(entries: list[Any], generated: dict[str, Any]) -> list[Any]:
    """The navigation with ``{title: NAME}`` replaced with ``{title: generated[NAME]}``."""
    replaced: list[Any] = []
    for entry in entries:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(value, list):
            replaced.append({title: with_generated(value, generated)})
        else:
            replaced.append({title: generated[value]} if value in generated else entry)
    return replaced


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the files outside ``docs``."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    for pattern in (*OUTSIDE, *OUTSIDE_PAGES):
        for file in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    return files


def generated_pages() -> dict[str, str]:
    """Pages that are made from the code and the configuration."""
    pages = {f"reference/config/{path}": text for path, text in config_reference.pages().items()}
    index = [
        "# Python packages",
        "",
        "The functions that most programs need are on the page [Python](../../python.md).",
        "",
    ]
    index += [f"- [`rdm.{name}`]({name}.md): {meaning}" for name, meaning in API.items()]
    index += ["", "## Loading and using a model", "", "::: rdm.app.open_model.load", "", "::: rdm.app.model.Model", ""]
    index += ["::: rdm.app.model.Evaluation", "", "::: rdm.evaluation.generation.Generated", ""]
    pages["reference/api/index.md"] = "\n".join(index)
    for name, meaning in API.items():
        modules = [each.name for each in pkgutil.walk_packages([str(ROOT / "rdm" / name)], f"rdm.{name}.")]
        blocks = [f"## {module}\n\n::: {module}" for module in modules if "__main__" not in module]
        pages[f"reference/api/{name}.md"] = "\n\n".join([f"# rdm.{name}", meaning, *blocks]) + "\n"
    return pages


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links, which are relative to the repository, to the site; a link to what is not there becomes text."""
    path = page.file.src_uri
    if path in WIDE:
        page.meta["hide"] = ["navigation"]
    outside = path in {file.relative_to(ROOT).as_posix() for pattern in OUTSIDE for file in ROOT.glob(pattern)}
    origin = path if outside else f"docs/{path}"

    def replace(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        wanted = inside.removeprefix("docs/")
        if files.get_file_from_path(wanted) is not None:
            relative = posixpath.relpath(wanted, posixpath.dirname(path) or ".")
            return f"{match['open']}({relative}{'#' + anchor if anchor else ''})"
        if not inside.startswith("docs/") and (ROOT / inside).exists():
            return match["text"]
        return match[0]  # a broken link, which the strict build reports

    parts = FENCED.split(markdown)  # text and code blocks in turn
    return "".join(part if index % 2 else LINK.sub(replace, part) for index, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the formulas."""
    return formulas.draw_formulas(html)
