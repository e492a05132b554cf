"""The script that computes COMET in another environment."""

import subprocess
import sys
from pathlib import Path


def test_comet_script(tmp_path: Path) -> None:
    """scripts/comet_score.py with a fake COMET whose score is the share of exact matches."""
    (tmp_path / "comet.py").write_text(
        "class Model:\n"
        "    def predict(self, samples, batch_size, gpus):\n"
        "        self.system_score = sum(s['mt'] == s['ref'] for s in samples) / len(samples)\n"
        "        assert {'src', 'mt', 'ref'} == samples[0].keys()\n"
        "        return self\n"
        "def download_model(name): return name\n"
        "def load_from_checkpoint(place): return Model()\n"
    )
    file = tmp_path / "x.jsonl"
    file.write_text(
        '{"source": "s", "references": ["a", "z"], "hypothesis": "a"}\n'
        '{"source": "s", "references": ["b"], "hypothesis": "c"}\n'
    )
    script = Path(__file__).parent.parent.parent / "scripts" / "comet_score.py"
    done = subprocess.run(
        [sys.executable, str(script), str(file)], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "COMET 0.5000, Unbabel/wmt22-comet-da, 2 sentences\n", done.stderr
    assert '"comet": 0.5' in (tmp_path / "x.comet.json").read_text()
