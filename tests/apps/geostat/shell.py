"""Commands of the application as the shell starts them, in this process."""

from __future__ import annotations

from tests.inside.cli import main


def shell(*words: object) -> int:
    """Exit status of ``ooc-chol geostat words...``."""
    return main(["geostat", *map(str, words)])


def shell_told(capsys, *words: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    status = shell(*words)
    told = capsys.readouterr()
    return status, told.out, told.err


def refused(capsys) -> str:
    """The one line of the error that a command has just ended with."""
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told.splitlines()[-1]
