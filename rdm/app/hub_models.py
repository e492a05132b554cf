"""Models on the Hugging Face Hub: found by id, downloaded once, uploaded; errors in one line.

Only the files of an exported model are downloaded or uploaded, whatever else is in the repository or the folder.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rdm.errors import UserError, require

EXPORTED_FILES = ("config.yaml", "codec.json", "tokenizer.json", "export.json", "model.safetensors", "README.md")
FIGURES = "figures"
PATTERNS = [*EXPORTED_FILES, f"{FIGURES}/*"]
MODEL_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")
LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class HubModel(NamedTuple):
    """A model in the local cache of the Hub; the name of its folder is the commit."""

    folder: Path
    repository: str


def split_id(name: str) -> tuple[str, str | None] | None:
    """Return repository and revision of ``user/name`` or ``user/name@revision``; None for anything else.

    >>> split_id("user/name@v1"), split_id("user/name"), split_id("/home/run"), split_id("run")
    (('user/name', 'v1'), ('user/name', None), None, None)
    """
    found = MODEL_ID.fullmatch(name)
    return (found["repository"], found["revision"]) if found else None


def find_on_hub(name: str, key: str) -> HubModel | None:
    """Return the model with the Hub id ``name``, downloaded or cached; None if ``name`` is not an id.

    A name below an existing folder, such as a misspelt ``outputs/<run>``, is taken for a path.

    Args:
        name: ``user/name`` or ``user/name@revision``, where the revision is a branch, a tag or a commit.
        key: the option that names it, for messages.
    """
    found = split_id(name)
    if found is None or Path(name).parent.is_dir():
        return None
    repository, revision = found
    from huggingface_hub import snapshot_download

    import rdm

    with one_line_errors(f"{key}: {name}", revision):
        folder = Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=PATTERNS,
                library_name="rdm",
                library_version=rdm.__version__,
            )
        )
    missing = [file for file in ("config.yaml", "export.json") if not (folder / file).is_file()]
    require(not missing, f"{key}: {name} on the Hub is not an exported model of rdm (it has no {', '.join(missing)})")
    return HubModel(folder, repository)


def upload(folder: Path, repository: str, private: bool | None, message: str, revision: str | None) -> str:
    """Upload an exported folder as one commit and return its address.

    Args:
        folder: an exported folder.
        repository: ``user/name``; made if it does not exist.
        private: whether a new repository is private; None leaves it to the settings of the account.
        message: of the commit.
        revision: a branch, made if it does not exist; None is the main one.
    """
    from huggingface_hub import HfApi

    import rdm

    found = split_id(repository)
    require(found is not None and found[1] is None, f"push_to_hub: {repository!r} is not an id such as user/name")
    api = HfApi(library_name="rdm", library_version=rdm.__version__)
    with one_line_errors(f"push_to_hub: {repository}", revision):
        api.create_repo(repository, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        committed = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=PATTERNS,
            commit_message=message,
            revision=revision,
        )
    return str(committed.commit_url)


@contextmanager
def one_line_errors(what: str, revision: str | None) -> Iterator[None]:
    """Turn errors of the Hub's client into a :class:`UserError` that starts with ``what``."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(f"{what} is gated on the Hub: ask for access on its page, then {LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{what} does not exist, neither here nor on the Hub; if it is private, {LOGIN}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{what}: there is no revision {revision or 'main'} on the Hub") from error
    except errors.LocalEntryNotFoundError as error:
        raise UserError(f"{what} does not exist here or in the cache, and the Hub cannot be reached") from error
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        advice = f": no permission; {LOGIN} to a token that may do this" if code in (401, 403) else ""
        raise UserError(f"{what}: the Hub answered {code}{advice}") from error
    except ValueError as error:  # an id that is not one, or metadata of the card that the Hub refuses
        raise UserError(f"{what}: {' '.join(str(error).split())}") from error
    # The HTTP library of the client, whatever it is, and errors of the connection.
    except (errors.HTTPError, ConnectionError) as error:
        raise UserError(f"{what}: the Hub cannot be reached ({type(error).__name__})") from error
