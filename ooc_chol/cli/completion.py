"""``ooc-chol completion bash|zsh|fish``: a script that completes commands, options and their words, made from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ooc_chol.cli.parsers import examples


@dataclass(frozen=True)
class Word:
    """A word that may stand somewhere, and what is said of it."""

    text: str
    help: str


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    words: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]  #: Its values, where they are a few words


@dataclass(frozen=True)
class Place:
    """Words that may follow a command, or the first words of one: ``path`` is ``""``, ``"plan"``, ``"bench rates"``, ..."""

    path: str
    commands: tuple[Word, ...]  #: Commands below, and words that its first argument may be
    options: tuple[Option, ...]


def add_arguments(parser: argparse.ArgumentParser, make_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the argument of ``completion`` to its parser; ``make_parser`` makes that of all commands."""
    parser.description = "Print a script for a shell, which completes commands, options and their values from then on."
    parser.epilog = examples(
        "ooc-chol completion bash > ~/.local/share/bash-completion/completions/ooc-chol",
        "ooc-chol completion zsh > ~/.zfunc/_ooc-chol    # with fpath+=~/.zfunc before compinit in ~/.zshrc",
        "ooc-chol completion fish > ~/.config/fish/completions/ooc-chol.fish",
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="which shell")
    parser.set_defaults(run=partial(_run, make_parser))


def _run(make_parser: Callable[[], argparse.ArgumentParser], arguments: argparse.Namespace) -> None:
    script = _SCRIPTS[arguments.shell](list(places(make_parser())))
    arguments.answer = {"shell": arguments.shell, "script": script}
    print(script)


def places(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Place]:
    """Every command of a parser, itself first."""
    complete = getattr(parser, "complete", None)
    if complete is not None:
        complete()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    commands = [Word(each.dest, each.help or "") for action in below for each in action._choices_actions]
    options = tuple(_option(action) for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS)
    words = [action for action in parser._actions if not action.option_strings and action.choices and action not in below]
    first = [Word(str(choice), "") for action in words for choice in action.choices or ()]
    yield Place(path, (*commands, *first), options)
    for action in below:
        for name, child in action.choices.items():
            yield from places(child, f"{path} {name}".strip())


def _option(action: argparse.Action) -> Option:
    """Facts of an option that a shell must know."""
    takes_value = action.nargs is None or action.nargs not in (0, "0")
    choices = tuple(map(str, action.choices)) if action.choices else _choices(action.metavar)
    text = (action.help or "") % {"default": action.default} if "%(" in (action.help or "") else action.help or ""
    return Option(tuple(action.option_strings), text.replace("%%", "%"), takes_value, choices)


def _choices(metavar: object) -> tuple[str, ...]:
    """Values of an option that its metavar lists as ``{a,b}`` or, in small letters, as ``a|b``."""
    if not isinstance(metavar, str):
        return ()
    if listed := re.fullmatch(r"\{([\w,.-]+)\}", metavar):
        return tuple(listed[1].split(","))
    return tuple(word for word in metavar.split("|") if re.fullmatch(r"[a-z-]+", word)) if "|" in metavar else ()


def _chosen(found: Iterable[Place]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Command, word and choices of every option whose value is one of a few."""
    for place in found:
        for option in place.options:
            if option.choices:
                yield from ((place.path, word, option.choices) for word in option.words)


def _patterns(found: Sequence[Place]) -> tuple[str, str]:
    """Patterns of ``case`` for all options that take a value, and for all commands."""
    takers = {word for place in found for option in place.options if option.takes_value for word in option.words}
    return " | ".join(sorted(takers)), " | ".join(f"'{place.path}'" for place in found if place.path)


def _bash(found: list[Place]) -> str:
    """The script for bash: files are completed where it knows nothing better."""
    cases = "\n".join(f"        '{place.path}') words={_quoted(_all_words(place))} ;;" for place in found)
    values = "\n".join(f"        '{path}:{word}') words={_quoted(choices)} ;;" for path, word, choices in _chosen(found))
    takers, paths = _patterns(found)
    return f"""# bash completion of ooc-chol; made by `ooc-chol completion bash`
_ooc_chol() {{
    local word='' words='' path='' at=1 current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    COMPREPLY=()
    while [ "$at" -lt "$COMP_CWORD" ]; do
        word="${{path:+$path }}${{COMP_WORDS[at]}}"
        case "$word" in {paths}) path="$word" ;; esac
        at=$((at + 1))
    done
    case "$path:$before" in
{values}
        *) case "$before" in {takers}) return ;; esac ;;
    esac
    [ -n "$words" ] || case "$path" in
{cases}
    esac
    case "$current" in -*) ;; *) [ -n "$path" ] && case "$words" in --*) return ;; esac ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _ooc_chol ooc-chol"""


def _zsh(found: list[Place]) -> str:
    """The script for zsh: words with what is said of them."""
    cases = "\n".join(
        f"        '{place.path}')\n            commands=({_zsh_words(place.commands)})\n"
        f"            options=({_zsh_words(_option_words(place))}) ;;"
        for place in found
    )
    values = "\n".join(
        f"        '{path}:{word}') compadd -- {' '.join(choices)}; return ;;" for path, word, choices in _chosen(found)
    )
    takers, paths = _patterns(found)
    return f"""#compdef ooc-chol
# zsh completion of ooc-chol; made by `ooc-chol completion zsh`
_ooc_chol() {{
    local word='' path_='' at=2
    local -a commands options
    while (( at < CURRENT )); do
        word="${{path_:+$path_ }}${{words[at]}}"
        case "$word" in {paths}) path_="$word" ;; esac
        (( at++ ))
    done
    case "$path_:${{words[CURRENT-1]}}" in
{values}
    esac
    case "${{words[CURRENT-1]}}" in {takers}) _files; return ;; esac
    case "$path_" in
{cases}
    esac
    if [[ "${{words[CURRENT]}}" == -* ]]; then
        _describe -o option options
    else
        (( $#commands )) && _describe command commands
        _files
    fi
}}
if [ "$funcstack[1]" = _ooc_chol ] || [ "$funcstack[1]" = _ooc-chol ]; then _ooc_chol "$@"; else compdef _ooc_chol ooc-chol; fi"""


def _fish(found: list[Place]) -> str:
    """The script for fish: a line for each word."""
    lines = [
        "# fish completion of ooc-chol; made by `ooc-chol completion fish`",
        "function __ooc_chol_at",
        "    set -l words (commandline -opc)",
        "    set -l path",
        "    for word in $words[2..-1]",
        f'        contains -- (string trim -- "$path $word") {" ".join(_fish_quoted(p.path) for p in found if p.path)}',
        "        and set -a path $word",
        "    end",
        '    test "$path" = "$argv"',
        "end",
    ]
    for place in found:
        here = f"complete -c ooc-chol -n {_fish_quoted(f'__ooc_chol_at {place.path}'.strip())}"
        lines += [f"{here} -f -a {word.text} -d {_fish_quoted(_short(word.help))}" for word in place.commands]
        for option in place.options:
            names = " ".join(f"-l {w[2:]}" if w.startswith("--") else f"-s {w[1:]}" for w in option.words)
            value = f" -x -a {_fish_quoted(' '.join(option.choices))}" if option.choices else " -r" * option.takes_value
            lines.append(f"{here} {names}{value} -d {_fish_quoted(_short(option.help))}")
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _option_words(place: Place) -> list[Word]:
    """Options of a command as words."""
    return [Word(word, option.help) for option in place.options for word in option.words]


def _all_words(place: Place) -> tuple[str, ...]:
    """Commands and options of a place."""
    return (*(word.text for word in place.commands), *(word.text for word in _option_words(place)))


def _quoted(words: tuple[str, ...]) -> str:
    return f"'{' '.join(words)}'"


def _zsh_words(words: list[Word] | tuple[Word, ...]) -> str:
    escaped = [(word.text.replace(":", r"\:"), _short(word.help).replace("'", "")) for word in words]
    return " ".join(f"'{text}:{told}'" if told else f"'{text}'" for text, told in escaped)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _short(text: str) -> str:
    """The first words of a help text."""
    whole = " ".join(text.split())
    return whole if len(whole) <= 70 else whole[:69].rsplit(" ", 1)[0] + " …"
