"""Untrusted configurations: which classes they may name.

To build what a configuration names is to run it. The command line and the configuration files of the user may name any
importable class. A configuration read from a run folder, an exported model or the Hub is data from strangers: before
anything of it is used, :func:`check_foreign` refuses every name outside this package, unless the user trusts it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rdm.app.targets import KNOWN_TARGETS, PACKAGE
from rdm.errors import UserError

SAFE_RESOLVERS = ("oc.env", "oc.select")
"""Resolvers that give text or refer to another node; others could assemble a ``_target_``."""
RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
NESTED = re.compile(r"\$\{[^}]*\$\{")
NAMED = re.compile(r"_target_[\"']?\s*[:=]\s*[\"']?([\w.]*)")


def trusted_packages(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """The packages of ``trust=my_package`` or ``trust=[a,b]``; none for null.

    >>> trusted_packages("my_package"), trusted_packages(["a", "b"]), trusted_packages(None)
    (('my_package',), ('a', 'b'), ())
    """
    return (value,) if isinstance(value, str) else tuple(str(each) for each in value or ())


def check_foreign(config: DictConfig, origin: object, trust: Sequence[str] = ()) -> DictConfig:
    """Return ``config`` if all it names is code of this package, of PyTorch's optimisers or of trusted packages.

    Nothing is imported or resolved. A ``_target_`` must be given literally, and interpolations may only refer to other
    keys or environment variables.

    Args:
        config: a configuration that was read from a file.
        origin: the file, for the message.
        trust: packages whose classes may be named too.
    """
    for key, value in strings(OmegaConf.to_container(config, resolve=False)):
        if key.rpartition(".")[2] == "_target_":
            check_name(value, f"{origin}: {key}", trust)
        check_interpolations(value, f"{origin}: {key}")
    return config


def check_recorded(overrides: Iterable[str], origin: object, trust: Sequence[str] = ()) -> list[str]:
    """Return overrides that were read from a run folder if they name allowed classes only."""
    checked = list(overrides)
    for override in checked:
        names = NAMED.findall(override)
        if len(names) != override.count("_target_"):
            raise UserError(f"{origin}: the recorded override {override} cannot be checked; give it again")
        for name in names:
            check_name(name, f"{origin}: {override.partition('=')[0]}", trust)
        check_interpolations(override, f"{origin}: {override.partition('=')[0]}")
    return checked


def check_name(target: str, key: str, trust: Sequence[str] = ()) -> None:
    """Raise a :class:`UserError` if a foreign configuration may not name ``target``."""
    trusted = (PACKAGE, "torch.optim", *trust)
    if target in KNOWN_TARGETS or any(target.startswith(f"{package}.") for package in trusted):
        return
    package = target.partition(".")[0]
    advice = f"; add trust={package} if code of that package may be run" if package.isidentifier() else ""
    raise UserError(f"{key}: {target} is not a class of this package{advice}")


def check_interpolations(value: str, key: str) -> None:
    """Raise a :class:`UserError` for an interpolation that could compute a name."""
    unsafe = [name for name in RESOLVER.findall(value) if name not in SAFE_RESOLVERS]
    if unsafe or NESTED.search(value):
        raise UserError(f"{key}: the interpolation {value} may not be used in the configuration of a trained model")


def strings(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All strings below ``node`` with their dotted keys."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from strings(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from strings(value, f"{path}[{index}]")
    elif isinstance(node, str):
        yield path, node
