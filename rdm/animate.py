"""``python -m rdm.animate RUN TEXT``: an animated SVG picture of how a model decodes a text.

The picture is made by :mod:`rdm.page.animation`; ``generate.py trace=true`` writes the page with all details.
"""

from pathlib import Path

import rdm
from rdm.app.arguments import Parser
from rdm.app.scripts import run_module
from rdm.errors import require
from rdm.page.animation import animate


def main() -> None:
    """Decode one text and write the picture of its decoding."""
    parser = Parser(prog="python -m rdm.animate", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="run folder, checkpoint file or exported model")
    parser.add_argument("text", help="source sentence, or the prompt of an open-ended model")
    parser.add_argument("--out", type=Path, default=Path("decoding.svg"), help="file to write")
    parser.add_argument("--decoding", help="a choice of conf/decoding; by default that of the run")
    parser.add_argument("--steps", type=int, help="iterations; by default those of the decoding")
    parser.add_argument("--schedule", help="a choice of conf/schedule; by default that of the decoding")
    arguments = parser.parse_args()
    require(bool(arguments.text.strip()), "text is empty")
    given = {"steps": arguments.steps, "schedule": arguments.schedule}
    options = {name: value for name, value in given.items() if value is not None}
    (output,) = rdm.load(arguments.run).generate([arguments.text], arguments.decoding, trace=True, **options)
    assert output.trace is not None
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(animate(output.trace, arguments.text), encoding="utf-8")
    print(f"{output.text}\n{arguments.out}")


if __name__ == "__main__":
    run_module(main)
