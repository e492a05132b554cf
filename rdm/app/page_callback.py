"""Hydra callback that writes the decoding page of generate.py."""

from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

if TYPE_CHECKING:  # imports torch, and Hydra imports this module before the arguments are checked
    from rdm.page.page import Page


class WritePage(Callback):
    """Writes one page at the end of a run of generate.py; a multirun gets one page for all its jobs."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if job_return._return_value is None:
            return
        from rdm.page.page import Page

        if isinstance(job_return._return_value, Page):
            self.pages.append(job_return._return_value)

    def on_run_end(self, config: DictConfig, **_: Any) -> None:
        if self.pages:
            from rdm.page.page import Page, merge_examples

            examples = [example for page in self.pages for example in page.examples]
            page = Page(self.pages[0].file, merge_examples(examples))
            page.write()
            print(f"wrote {page.file}")

    on_multirun_end = on_run_end
