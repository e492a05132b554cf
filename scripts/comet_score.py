"""COMET of saved hypotheses: ``make comet FILE=outputs/<run>/hypotheses/<name>.jsonl``.

The dependencies of COMET conflict with this project's, so this file imports nothing of ``rdm`` and runs in the separate
environment ``.venv-comet``, which ``make comet`` creates. Only the first reference is used.
"""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", type=Path)
parser.add_argument("--model", default="Unbabel/wmt22-comet-da", help="a model id on the Hub, or a checkpoint file")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--gpus", type=int, default=0)
arguments = parser.parse_args()

from comet import download_model, load_from_checkpoint  # noqa: E402 (after parsing, so that --help is fast)

lines = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").split("\n") if line]
samples = [{"src": line["source"], "mt": line["hypothesis"], "ref": line["references"][0]} for line in lines]
checkpoint = arguments.model if Path(arguments.model).is_file() else download_model(arguments.model)
score = load_from_checkpoint(checkpoint).predict(samples, arguments.batch_size, gpus=arguments.gpus).system_score
record = {"comet": score, "model": arguments.model, "sentences": len(samples), "hypotheses": str(arguments.file)}
arguments.file.with_suffix(".comet.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
print(f"COMET {score:.4f}, {arguments.model}, {len(samples)} sentences")
