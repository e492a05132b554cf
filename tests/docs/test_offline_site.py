"""The documentation site needs no other host: its search also works in a page opened from disk."""

from pathlib import Path

import yaml

from tests.browser import headless_chromium, needs_chromium
from tests.scripts import ROOT

SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.BaseLoader)
PAGE = """
<script src="{shim}"></script>
<p id="answer"></p>
<script>
  const worker = new Worker(new URL("worker.js", location));
  worker.addEventListener("message", (event) => (document.getElementById("answer").textContent = event.data.answer));
  worker.postMessage({{ question: [1, 2] }});
  worker.postMessage({{ question: [3, 4] }});
</script>
"""
WORKER = """
let sum = 0;
addEventListener("message", (event) => {
  for (const each of event.data.question) sum += each;
  postMessage({ answer: sum });
});
"""


def test_scripts_and_styles_are_local() -> None:
    assert SITE["theme"]["font"] == "false"
    (shim,) = SITE["extra"]["polyfills"]
    assert "iframe-worker" in shim  # otherwise the plugin "offline" adds the one of unpkg.com
    for path in (shim, *SITE["extra_css"]):
        assert (ROOT / "docs" / path).is_file(), path


@needs_chromium
def test_worker_runs_in_a_page_opened_from_disk(tmp_path: Path) -> None:
    shim = ROOT / "docs" / SITE["extra"]["polyfills"][0]
    (tmp_path / "page.html").write_text(f"<!doctype html><body>{PAGE.format(shim=shim.as_uri())}")
    (tmp_path / "worker.js").write_text(WORKER)
    with headless_chromium() as page:
        page.get((tmp_path / "page.html").as_uri())
        page.implicitly_wait(10)
        page.find_element("xpath", "//p[@id='answer'][text()='10']")
