"""Jinja environments of the HTML pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def html_templates(folder: Path) -> Environment:
    """The templates of a folder; values are escaped, because text may contain markup such as ``</script>``."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
