"""Options of calls: rows of which docstrings, words of command lines and refusals are made."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, TypeVar

from ooc_chol.config import parse_bytes, parse_count, parse_devices
from ooc_chol.display.prints import brief_repr

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Option of a call: what docstrings, command lines and refusals say of it.

    Parameters
    ----------
    text : str
        Its description.
    type : str
        Its type, as docstrings name it.
    parse : callable
        Makes the value from a word of a command line.
    metavar : str, optional
        Stands for the value in the help of a command.
    choices : tuple of str
        All values, where they are a few words.
    check : callable
        ``check(value, name)`` gives the value as the call takes it, and refuses others by name.
    word : str, optional
        Its word on command lines, where that is not its name; empty where there is none.
    """

    text: str
    type: str
    parse: Callable[[str], Any] = str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any, str], Any] = lambda value, name: value
    word: str | None = None

    __repr__ = brief_repr

    def entry(self, name: str, more: str = "") -> str:
        """The entry in a numpydoc list of parameters, with sentences of one call more."""
        text = f"{self.text} {more}".rstrip()
        lines = textwrap.wrap(text, 124, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([f"{name} : {self.type}", *lines])

    def help(self, default: object) -> str:
        """The description as part of a sentence, without reStructuredText, and the default where that is a value."""
        plain = re.sub(r":\w+:(?=`)|`|~ooc_chol\.(\w+\.)*", "", self.text).removesuffix(".").replace("%", "%%")
        return plain[0].lower() + plain[1:] + ("" if default is None or default is False else " (default: %(default)s)")

    def add_word(
        self, parser: argparse._ActionsContainer, name: str, default: Any, aliases: Sequence[str] = (), more: str = ""
    ) -> None:
        """Add the option to a command line."""
        if self.word == "":
            return
        words = [self.word or f"--{name.replace('_', '-')}", *aliases]
        told = "; ".join(filter(None, [self.help(default), more]))
        if isinstance(default, bool):
            parser.add_argument(*words, dest=name, action=argparse.BooleanOptionalAction, default=default, help=told)
        else:
            parser.add_argument(*words, dest=name, type=self.parse, default=default, metavar=self.metavar, help=told)


def checked_bytes(value: Any, name: str) -> Any:
    """A size that is more than nothing, text as it is; None for none."""
    nbytes = None if value is None else parse_bytes(value, name)
    return value if isinstance(value, str) else nbytes


def checked_flag(value: Any, name: str) -> bool:
    """True or False, NumPy's too."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} is a {type(value).__name__}; give True or False")
    return bool(value)


def checked_path(value: Any, name: str) -> Any:
    """A path; None for none."""
    if not (value is None or isinstance(value, str | PathLike)):
        raise TypeError(f"{name} is a {type(value).__name__}; give the path of a file")
    return value


def checked_progress(value: Any, name: str) -> Any:
    """A bar, a callable or nothing."""
    if not (value is None or isinstance(value, bool) or callable(value)):
        raise TypeError(f"{name} is a {type(value).__name__}; give True, False or a callable (done, total, seconds)")
    return value


def count(text: str) -> int:
    """The number that a word of a command line is, as argparse wants it: ``"64"`` or ``"1e5"``."""
    try:
        return parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


#: Options that all front doors have under one name, with one meaning, in this order behind those of the system; a front door
#: leaves out those that mean nothing there.
COMMON = {
    "store": Option("File for the result, in place of memory.", "path or None", check=checked_path, metavar="FILE"),
    "packed": Option(
        "File for the packed blocks of an A that is not packed; by default they are in host memory. What is there already is "
        "replaced where it is such a file, any other only with ``replace=True``.",
        "path or None",
        check=checked_path,
        metavar="FILE",
    ),
    "replace": Option("Replace whatever file the call is told to write.", "bool", check=checked_flag, word="--force"),
    "checkpoint": Option(
        "File from which the same call goes on, to the same bits, however the last one ended.",
        "path or None",
        check=checked_path,
        metavar="FILE",
    ),
    "devices": Option(
        'Names such as ``"cuda:0"``, with commas between or as a sequence; ``"cuda"`` for every visible GPU, ``"cpu"``, or a '
        "count. By default as many of the visible GPUs as are predicted to be fastest, else the host.",
        "str, sequence of str, int or None",
        parse=parse_devices,
        metavar="NAME,NAME,...",
    ),
    "memory_budget": Option(
        'Bytes per device, or text such as ``"256 MiB"``; by default half of what is free on the host, all but 2 GiB on a GPU.',
        "int, str or None",
        check=checked_bytes,
        metavar="BYTES",
    ),
    "host_budget": Option(
        "Bytes of host memory for what devices do not keep. By default what is free for what must be there; of files, half of "
        "what is free is kept for GPUs, and nothing for the host.",
        "int, str or None",
        check=checked_bytes,
        metavar="BYTES",
    ),
    "progress": Option(
        "True shows a bar; a callable receives ``(done, total, seconds)``, and ends the call where it returns True.",
        "bool, callable or None",
        check=checked_progress,
        word="",
    ),
    "trace": Option("Keep every operation for ``trace`` of the result.", "bool", check=checked_flag, word=""),
    "plan": Option("Plan of such a call, in place of the options of planning.", "plan or None", word=""),
}
#: What command lines have words for: a call takes the client of a cluster that is open.
_WORDS = {
    **COMMON,
    "cluster": Option(
        "Work on a Dask cluster: that of a scheduler such as tcp://head:8786, N processes of this machine (one for each GPU, or "
        "core), or N jobs of Slurm.",
        "str or None",
        metavar="ADDRESS|local[:N]|slurm[:N]",
    ),
}


def checked(**values: Any) -> dict[str, Any]:
    """Check common options, such as ``checked(memory_budget="4 GiB", trace=False)``.

    Parameters
    ----------
    **values
        Values by names of options.

    Returns
    -------
    dict
        The values as calls take them.

    Raises
    ------
    TypeError, ValueError
        A value makes no sense; the text names its option.
    """
    return {name: COMMON[name].check(value, name) for name, value in values.items()}


def documented(
    *, like: Callable[..., Any] | None = None, rows: Mapping[str, Option] | None = None, **more: str
) -> Callable[[Function], Function]:
    """Complete the docstring of a call, whose parameters stand in the order of its signature then.

    Parameters
    ----------
    like : callable, optional
        A call whose entries are taken for parameters that the docstring leaves out.
    rows : mapping of str to Option, optional
        Options of the system, by name; the common ones are known.
    **more
        Sentences of this call for some options, by their names.

    Returns
    -------
    callable
        A decorator.

    Raises
    ------
    KeyError
        Nobody says what a parameter is.
    """

    def completed(function: Function) -> Function:
        if function.__doc__:  # Python's -OO leaves none
            others = {} if like is None else _entries(inspect.getdoc(like) or "")
            function.__doc__ = _with_parameters(function, others, {**COMMON, **(rows or {})}, more)
        return function

    return completed


_HEADING = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")


def _entries(text: str) -> dict[str, str]:
    """The entries of a numpydoc list of parameters by the names that each begins with."""
    found: dict[str, str] = {}
    _, begins, rest = text.partition("Parameters\n----------\n")
    if not begins:
        return found
    rest = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n-{3,})", rest)[0]
    heading = ""
    for line in rest.splitlines():
        if not line.startswith(" ") and (match := _HEADING.match(line)):
            heading = match[1]
            found[heading] = line
        elif heading:
            found[heading] += f"\n{line}"
    return {name: entry.rstrip() for name, entry in found.items()}


def _heading(entries: Mapping[str, str], name: str) -> str:
    """The heading under which a parameter is described, alone or with others; empty where there is none."""
    return next((heading for heading in entries if name in heading.replace("*", "").split(", ")), "")


def _with_parameters(
    function: Callable[..., Any], others: Mapping[str, str], rows: Mapping[str, Option], more: Mapping[str, str]
) -> str:
    """The docstring with an entry for each parameter, in their order."""
    text = inspect.cleandoc(function.__doc__ or "")
    own = _entries(text)
    made: dict[str, str] = {}
    named = inspect.signature(function).parameters.values()
    for name in (each.name for each in sorted(named, key=lambda each: each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD))):
        if heading := _heading(own, name):
            made[heading] = own[heading]
        elif name in rows and (name in more or not _heading(others, name)):
            made[name] = rows[name].entry(name, more.get(name, ""))
        elif heading := _heading(others, name):
            made[heading] = others[heading]
        else:
            raise KeyError(f"{function.__name__} does not say what {name} is")
    listed = "\n".join(made.values())
    begin, _, rest = text.partition("Parameters\n----------\n")
    if not rest:
        head, _, tail = text.partition("\n\nReturns\n-------")
        return f"{head}\n\nParameters\n----------\n{listed}\n\nReturns\n-------{tail}"
    tail = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n-{3,})", rest, maxsplit=1)[1]
    return f"{begin}Parameters\n----------\n{listed}\n\n{tail}"


def add_words(
    parser: argparse._ActionsContainer,
    names: Collection[str],
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    """Add words for common options to a command line.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser of a command, or a group of its arguments.
    names : collection of str
        Names of the options; ``cluster`` names what ``open_cluster`` opens.
    aliases : mapping of str to sequence of str, optional
        More words for some options.
    more : mapping of str to str, optional
        Words that the help says of some options beside.
    """
    for name in names:
        default = False if _WORDS[name].type == "bool" else None
        _WORDS[name].add_word(parser, name, default, (aliases or {}).get(name, ()), (more or {}).get(name, ""))


def with_more(name: str, more: str, **others: Any) -> Option:
    """A common option with sentences of one system, and with other fields."""
    return replace(COMMON[name], text=f"{COMMON[name].text} {more}".rstrip(), **others)
