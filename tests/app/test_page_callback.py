"""The callback that writes the decoding page."""

from pathlib import Path

from hydra.core.utils import JobReturn
from omegaconf import DictConfig

from rdm.app.page_callback import WritePage
from rdm.page.page import Page, render
from rdm.page.trajectory import Example
from tests.page.helpers import SHORT, trajectory


def job_return(value: object) -> JobReturn:
    job = JobReturn()
    job.return_value = value
    return job


def test_jobs_of_a_multirun_share_a_page(tmp_path: Path) -> None:
    """Each source once, with the trajectories of all jobs; jobs without a page are skipped."""
    callback, config, file = WritePage(), DictConfig({}), tmp_path / "page.html"
    first, second = trajectory("first", SHORT), trajectory("second", SHORT)
    for value in (Page(file, [Example("a", [], [first])]), None, Page(file, [Example("a", [], [second])])):
        callback.on_job_end(config, job_return(value))
    assert not file.exists()
    callback.on_multirun_end(config)
    assert file.read_text(encoding="utf-8") == render([Example("a", [], [first, second])])


def test_no_page_is_written_without_traces(tmp_path: Path) -> None:
    callback = WritePage()
    callback.on_job_end(DictConfig({}), job_return(None))
    callback.on_run_end(DictConfig({}))
    assert list(tmp_path.iterdir()) == []
