"""The wheel: it has everything that is used at run time, and works outside a clone of the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.scripts import ROOT
from tests.test_contributing import example
from tests.test_end_to_end import SMALL

USE = """
import rdm
from rdm.app.choices import CONF
print(rdm.__file__, CONF, sep="\\n")
model = rdm.load("run")
print(model.generate(model.data().questions("test").sources[:1], "rdm_commit", steps=2)[0].text)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


def test_wheel_has_the_configuration_and_the_files_beside_the_modules(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    conf = {f"rdm/conf/{file.relative_to(ROOT / 'conf')}" for file in (ROOT / "conf").rglob("*.yaml")}
    beside = {str(file.relative_to(ROOT)) for file in (ROOT / "rdm").rglob("*.*") if "__pycache__" not in file.parts}
    cards = {f"rdm/data/{file.name}" for file in (ROOT / "data").glob("*.card.md")}
    assert conf | beside | cards <= names
    assert "rdm/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "data", "outputs"))]


@pytest.mark.slow
def test_installed_package_trains_and_generates_outside_the_clone(wheel: Path, tmp_path: Path) -> None:
    """With the packages of this environment, but its own copy of rdm, and a router in the working directory."""
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    (tmp_path / "my_router.py").write_text(example("python"))
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    trained = run(sys.executable, str(site / "bin" / "rdm-train"), *SMALL, "hydra.run.dir=run", "trainer.max_steps=2")
    assert trained.splitlines()[-1] == f"done: rdm-evaluate ckpt={tmp_path / 'run'}"
    router = "decoding.transition._target_=my_router.Margin"
    run(sys.executable, str(site / "bin" / "rdm-evaluate"), "ckpt=run", "limit=2", "decoding.steps=2", router)
    assert "my_router.Margin" in (tmp_path / "run" / "results.jsonl").read_text()
    package, conf, text = run(sys.executable, "-c", USE).splitlines()
    assert (package, conf) == (str(site / "rdm" / "__init__.py"), str(site / "rdm" / "conf"))
    assert text
