"""The copy of the output in the run folder."""

import io
from pathlib import Path

import pytest

from rdm.app.train_log import CopiedStream, copy_output
from rdm.errors import UserError


def test_a_line_that_is_updated_in_place_is_not_copied() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    stream = CopiedStream(terminal, file)
    print("start", file=stream)  # type: ignore[arg-type]
    for step in (1, 2):
        stream.write(f"step {step}\r")
    stream.write_to_file("step 2\n")
    print("done", file=stream)  # type: ignore[arg-type]
    assert file.getvalue() == "start\nstep 2\ndone\n"
    assert terminal.getvalue().startswith("start\nstep 1\r\x1b[Kstep 2")
    assert terminal.getvalue().endswith("\r\x1b[Kdone\n")


def test_the_error_that_ends_a_run_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @copy_output(tmp_path / "train.log")
    def fail() -> None:
        print("before")
        raise UserError("wrong")

    with pytest.raises(UserError):
        fail()
    print("after")
    assert (tmp_path / "train.log").read_text() == "before\nerror: wrong\n"
    assert capsys.readouterr().out == "before\nafter\n"
