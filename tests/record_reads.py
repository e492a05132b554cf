"""``record_reads.py <script> <file> [override ...]``: run a script and write the configuration keys that it reads.

Reads by the checks are not counted: a key that is only checked has no effect.
"""

import json
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from rdm.app import scripts

CHECKS = ("checks.py", "schema.py", "unused_keys.py")
PACKAGE = str(Path(scripts.__file__).parents[1])
read_value = DictConfig._get_impl
keys: set[str] = set()


def record(self: DictConfig, key: Any, *arguments: Any, **options: Any) -> Any:
    frame = sys._getframe(1)
    while "omegaconf" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    file = frame.f_code.co_filename
    if file.startswith(PACKAGE) and not file.endswith(CHECKS):
        keys.add(self._get_full_key(key))
    return read_value(self, key, *arguments, **options)


if __name__ == "__main__":
    DictConfig._get_impl = record  # type: ignore[method-assign]
    name, file = sys.argv[1:3]
    sys.argv[:3] = [f"{name}.py"]
    try:
        getattr(scripts, name)()
    finally:
        Path(file).write_text(json.dumps(sorted(keys)))
