"""Models on the Hub, against a stand-in for its HTTP API on loopback; the client is the real one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import rdm
from rdm.app.hub_models import EXPORTED_FILES, split_id
from rdm.errors import UserError
from tests.hub_server import HubServer, Repository
from tests.scripts import ROOT, script
from tests.test_end_to_end import SMALL

FAST = [*SMALL, "trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.sampling=null"]
SOURCE = "da hunde alte heut ei katzin seht ."
LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class Client:
    """Runs code and scripts in a process whose client of the Hub was imported for the stand-in."""

    def __init__(self, hub: HubServer, folder: Path) -> None:
        self.hub, self.folder = hub, folder
        self.variables = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(folder / "huggingface"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",  # the protocol of large files that the stand-in has is LFS
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    def run(self, code: str, token: str = "writer", status: int = 0) -> SimpleNamespace:
        """Run Python code in the working directory of this client."""
        file = self.folder / "code.py"
        start = f"import os, runpy, sys\nos.chdir({str(self.folder)!r})\nimport rdm\n"
        file.write_text(start + code)
        done = script(str(file), environment={"HF_TOKEN": token}, imported_with=self.variables, code=status)
        return SimpleNamespace(out=done.stdout, error=done.stderr)

    def script(self, name: str, *arguments: str, status: int = 0) -> SimpleNamespace:
        code = f"sys.argv = {[name, *arguments]!r}\nrunpy.run_path({str(ROOT / name)!r}, run_name='__main__')\n"
        return self.run(code, status=status)

    def errors(self, *statements: str, token: str = "writer") -> list[str]:
        """The lines in which statements are refused, one each."""
        template = "try:\n    {}\nexcept rdm.UserError as error:\n    print(error)\nelse:\n    print('no error')\n"
        lines = self.run("".join(template.format(each) for each in statements), token=token).out.splitlines()
        assert len(lines) == len(statements), lines
        return lines


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model, with a file beside it that is not to be uploaded."""
    folder = tmp_path_factory.mktemp("hub_model")
    script("train.py", *FAST, f"hydra.run.dir={folder / 'run'}")
    model = rdm.load(folder / "run").export(folder / "exported")
    (model / "results.jsonl").touch()
    return model


@pytest.fixture(scope="module")
def client(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    hub = HubServer()
    with hub.running():
        client = Client(hub, tmp_path_factory.mktemp("client"))
        yield client


@pytest.fixture(scope="module")
def pushed(client: Client, exported: Path) -> Repository:
    """The repository after a first push, to a private repository."""
    push = f"print(rdm.load({str(exported)!r}).push_to_hub('user/model', private=True, commit_message='The first'))"
    address = client.run(push).out.strip()
    repository = client.hub.repositories["user/model"]
    assert address == f"{client.hub.endpoint}/user/model/commit/{repository.branches['main']}"
    return repository


def test_ids() -> None:
    assert split_id("user/name@refs/pr/1") == ("user/name", "refs/pr/1")
    for path in ("run", "a/b/c", "/a/b", "./a", "../a", "a/", "a/b@", "~/a", "a b/c", ".a/b"):
        assert split_id(path) is None, path


def test_upload(client: Client, pushed: Repository, exported: Path) -> None:
    """One private commit with the files of the exported folder, weights and figures as large files."""
    assert pushed.private
    assert pushed.messages == ["initial commit", "The first"]
    files = pushed.commits[pushed.branches["main"]]
    names = set(files) - {".gitattributes"}
    assert {name for name in names if not name.startswith("figures/")} == set(EXPORTED_FILES)
    assert files["model.safetensors"] in client.hub.objects.values()
    assert all(files[name] == (exported / name).read_bytes() for name in names)


def test_download_gives_the_same_outputs(client: Client, pushed: Repository, exported: Path) -> None:
    """In Python, and in generate.py and evaluate.py, whose files go to outputs/<user>--<name> and not to the cache."""
    expected = rdm.load(exported).generate([SOURCE], steps=2)[0].text
    commit = pushed.branches["main"]
    code = f"model = rdm.load('user/model')\nprint(model.run.origin, model.generate([{SOURCE!r}], steps=2)[0].text)\n"
    assert client.run(code).out == f"user/model@{commit} {expected}\n"
    options = ("ckpt=user/model@main", "decoding.steps=2")
    shown = client.script("generate.py", *options, f"text='{SOURCE}'", "trace=true").out
    assert shown.splitlines()[-2] == expected
    client.script("evaluate.py", *options, "limit=2")
    files = client.folder / "outputs" / "user--model"
    row = json.loads((files / "results.jsonl").read_text())
    assert row["run"] == f"user/model@{commit}"
    assert (files / "decoding.html").is_file()
    assert Path(client.folder / row["hypotheses"]).parent == files / "hypotheses"
    cached = {file.name for file in (client.folder / "huggingface" / "hub").rglob("snapshots/*/*")}
    assert cached == {*EXPORTED_FILES, "figures"}


def test_revisions(client: Client, pushed: Repository, exported: Path) -> None:
    """A push to a new branch leaves the main one; a commit, a branch and the default can be loaded."""
    first = pushed.branches["main"]
    changed = Path(shutil.copytree(exported, client.folder / "changed"))
    (changed / "README.md").write_text("---\nlibrary_name: rdm\n---\nAnother card\n")
    code = (
        f"rdm.load({str(changed)!r}).push_to_hub('user/model', revision='v2')\n"
        f"for revision in (None, 'v2', {first!r}):\n"
        "    print((rdm.load('user/model', revision=revision).run.folder / 'README.md').read_text().count('Another'))\n"
    )
    assert client.run(code).out.split() == ["0", "1", "0"]
    assert pushed.branches["main"] == first != pushed.branches["v2"]
    done = client.script("generate.py", "ckpt=user/model@v3", "text=x", status=2)
    assert done.error == "error: ckpt: user/model@v3: there is no revision v3 on the Hub\n"


def test_a_local_path_is_not_looked_for_on_the_hub(client: Client, pushed: Repository, exported: Path) -> None:
    shutil.copytree(exported, client.folder / "user" / "local")
    client.hub.repositories["user/local"] = Repository()
    client.hub.requests.clear()
    found, typo, revision = client.errors(
        "raise rdm.UserError(rdm.load('user/local').run.origin)",
        "rdm.load('user/locla')",
        "rdm.load('user/local', revision='v1')",
    )
    assert (found, typo) == ("user/local", "ckpt: user/locla does not exist")
    assert revision == "revision=v1 is for the id of a model on the Hub, user/name; got user/local"
    assert not client.hub.requests
    shutil.rmtree(client.folder / "user")


def test_refused(client: Client, pushed: Repository, exported: Path) -> None:
    """Unknown, private, gated, not ours, hostile; no permission to write. One line each, and nothing is downloaded."""
    hub = client.hub
    files = pushed.commits[pushed.branches["main"]]
    hostile = files["config.yaml"].replace(b"rdm.systems.diffusion.DiffusionSystem", b"os.system")
    for name, content in {
        "gated": files,
        "secret": files,
        "other": {"config.json": b"{}", "pytorch_model.bin": b"\x80"},
        "hostile": {**files, "config.yaml": hostile},
    }.items():
        hub.repositories[f"user/{name}"] = Repository(gated=name == "gated", private=name == "secret")
        hub.repositories[f"user/{name}"].add("main", content, "first")
    unknown = f"does not exist, neither here nor on the Hub; if it is private, {LOGIN}"
    forbidden = f"the Hub answered 403: no permission; {LOGIN} to a token that may do this"
    push = f"rdm.load({str(exported)!r}).push_to_hub"
    absent, other, hostile_class, not_mine, wrong, short = client.errors(
        "rdm.load('user/nothing')",
        "rdm.load('user/other')",
        "rdm.load('user/hostile')",
        f"{push}('someone/new')",
        f"{push}('user/a--b')",
        f"{push}('new')",
    )
    assert absent == f"ckpt: user/nothing {unknown}"
    missing = "is not an exported model of rdm (it has no config.yaml, export.json)"
    assert other == f"ckpt: user/other on the Hub {missing}"
    assert "os.system is not a class of this package" in hostile_class
    assert not_mine == f"push_to_hub: someone/new: {forbidden}"
    assert wrong.startswith("push_to_hub: user/a--b: Cannot have -- or .. in repo_id")
    assert short == "push_to_hub: 'new' is not an id such as user/name"
    gated, read_only = client.errors("rdm.load('user/gated')", f"{push}('user/new')", token="reader")
    assert gated == f"ckpt: user/gated is gated on the Hub: ask for access on its page, then {LOGIN}"
    assert read_only == f"push_to_hub: user/new: {forbidden}"
    secret, anonymous = client.errors("rdm.load('user/secret')", f"{push}('user/new')", token="")
    assert secret == f"ckpt: user/secret {unknown}"
    assert anonymous == f"push_to_hub: user/new: {forbidden.replace('403', '401')}"
    assert "user/new" not in hub.repositories


def test_without_a_connection(client: Client, pushed: Repository, exported: Path) -> None:
    """What was downloaded before is used; anything else is one line."""
    client.run("rdm.load('user/model')")
    code = (
        "print(rdm.load('user/model').name)\n"
        f"for load in (lambda: rdm.load('user/unknown'), lambda: rdm.load({str(exported)!r}).push_to_hub('user/x')):\n"
        "    try:\n        load()\n    except rdm.UserError as error:\n        print(error)\n"
    )
    with client.hub.stopped():
        name, unknown, push = client.run(code).out.splitlines()
    assert name == "rdm_absorbing"
    assert unknown == "ckpt: user/unknown does not exist here or in the cache, and the Hub cannot be reached"
    assert push.startswith("push_to_hub: user/x: the Hub cannot be reached (")
    offline = script("generate.py", "ckpt=user/unknown", "text=x", code=2)  # with HF_HUB_OFFLINE=1
    assert offline.stderr == f"error: {unknown}\n"
    with pytest.raises(UserError, match="nowhere does not exist"):
        rdm.load("nowhere")
