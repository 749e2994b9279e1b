"""How a part that is not installed can be: from the clone that the package came from, since no index has it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path


def install_hint(extra: str) -> str:
    """The command that installs an extra of this package, such as ``"plots"``.

    Parameters
    ----------
    extra : str
        Name of the extra in ``pyproject.toml``.

    Returns
    -------
    str
        A line for a shell, in the clone that the package runs or was installed from; where that is not known or no longer there,
        the same for any clone, in words.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.install_hint("plots").partition("python3")[2]
    " -m pip install '.[plots]'"
    """
    clone = _clone(Path(__file__).parent, _direct_url())
    install = f"python3 -m pip install '.[{extra}]'"
    return f"in a clone of ooc_chol: {install}" if clone is None else f"cd {shlex.quote(str(clone))} && {install}"


def _clone(package: Path, direct_url: str | None) -> Path | None:
    """The folder of the package's sources, beside it or where ``direct_url.json`` (PEP 610) says."""
    folders = [package.parent]
    if direct_url is not None:
        folders += _told(direct_url)
    return next((folder for folder in folders if (folder / "pyproject.toml").is_file() and (folder / "ooc_chol").is_dir()), None)


def _told(direct_url: str) -> list[Path]:
    """The folder that the file names, if it is one of this machine and the file is what it should be."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname  # brings half of http along, which no factorization needs

    try:
        url = urlsplit(json.loads(direct_url)["url"])
        return [Path(url2pathname(url.path))] if url.scheme == "file" and "\0" not in url.path else []
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return []


def _direct_url() -> str | None:
    """Record of the installer on where the package came from, if any."""
    from importlib import metadata

    try:
        return metadata.distribution("ooc_chol").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
