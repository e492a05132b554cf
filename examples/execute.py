"""Make quickstart.ipynb from quickstart.py and execute it: ``python examples/execute.py [--write]``.

Without ``--write`` the notebook is executed as it is, in a temporary working directory, and must match the script.
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

SCRIPT = Path(__file__).with_name("quickstart.py")
NOTEBOOK = SCRIPT.with_suffix(".ipynb")
CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def notebook_from(script: str) -> nbformat.NotebookNode:
    """The cells of a script in percent format, without outputs."""
    _, *parts = CELL.split(script)
    cells = []
    for number, (markdown, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        kind = nbformat.v4.new_markdown_cell if markdown else nbformat.v4.new_code_cell
        content = re.sub(r"^# ?", "", text, flags=re.MULTILINE) if markdown else text
        cells.append(kind(content.strip(), id=f"cell-{number}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main() -> None:
    wanted = notebook_from(SCRIPT.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        nbformat.write(wanted, NOTEBOOK)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    sources = [[cell.source for cell in each.cells] for each in (wanted, notebook)]
    if sources[0] != sources[1]:
        sys.exit(f"{NOTEBOOK} differs from {SCRIPT.name}: run python examples/execute.py --write")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            shown = [name for name in data if name != "text/plain"]
            print(output.get("text") or data.get("text/plain", ""), *(f"[{name}]" for name in shown))


if __name__ == "__main__":
    main()
