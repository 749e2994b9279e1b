"""Options of a factorization: one table, from which the record, its docstring and the words of command lines are made."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from numbers import Real
from typing import Any, Literal, Self, TypeAlias, TypeVar

from ooc_chol.calls.options import Option, checked_bytes, count, with_more
from ooc_chol.config import whole_number
from ooc_chol.display.prints import one_line
from ooc_chol.formats import FP64, PrecisionFormat, type_named
from ooc_chol.precision.moduli import ResidueBasis

T = TypeVar("T")

#: The words of options that are chosen from a few, for type checkers; the table below has the same.
Policy: TypeAlias = Literal["planned", "sync", "async", "v1", "v2", "v3"]
Objective: TypeAlias = Literal["seconds", "bytes"]
Fp64: TypeAlias = Literal["auto", "native", "residue"]
PrecisionRule: TypeAlias = Literal["unit-roundoff", "paper"]
HalfProducts: TypeAlias = bool | None

#: Largest order at which products through residues take one modulus more unless told otherwise. Up to there native FP64 can be
#: more accurate than 50 bits (2.3 times LAPACK's residual at order 16384, 54 bits 0.6 times); at 65536 and above 50 bits had a
#: third to a seventh of the largest residual of native FP64 on an H200.
MOST_ROWS_OF_14 = 32768


#: Moduli of small and of larger matrices, by type: 54 and 50 bits in float64, 55 and 51 of complex128, 27 of float32, and 30 and
#: 26 of complex64. At order 2048 float32 had at most LAPACK's residual with 7 and up to 6.4 times it with 6.
_DEFAULT_MODULI = {"float64": (14, 13), "complex128": (15, 14), "float32": (7, 7), "complex64": (8, 7)}


def default_moduli(n: int, fmt: PrecisionFormat = FP64) -> int:
    """Moduli at which a factor of order ``n`` is as accurate as a native one: in FP64 14 (54 bits) for small ones, 13 above."""
    return _DEFAULT_MODULI[fmt.dtype.name][n > MOST_ROWS_OF_14]


def _row(default: object, type: str, text: str, *, parse: Callable[[str], Any] = str, metavar: str | None = None) -> Any:
    """A row of the table, as a field of the record."""
    return field(default=default, metadata={"option": Option(text, type=type, parse=parse, metavar=metavar)})


def _common(name: str, more: str = "") -> Any:
    """A row of the table of all calls, with sentences on factorizations."""
    return field(default=None, metadata={"option": with_more(name, more)})


def _choice(choices: Sequence[str], text: str) -> Any:
    """A row whose values are a few words, the first of them the default."""
    quoted = ", ".join(f'"{choice}"' for choice in choices)
    row = Option(text, type=f"{{{quoted}}}", parse=str, metavar=f"{{{','.join(choices)}}}", choices=tuple(choices))
    return field(default=choices[0], metadata={"option": row})


def _half_products(text: str) -> bool:
    words = {"yes": True, "no": False}
    if text not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(words)}")
    return words[text]


def _documented(cls: type[T]) -> type[T]:
    """Give ``cls`` the list of its parameters from the table."""
    entries = [row.entry(name) for name, (row, _) in option_table(cls).items()]
    cls.__doc__ = "\n".join([f"{cls.__doc__}\n", "Parameters", "----------", *entries])
    return cls


def option_table(cls: Any) -> dict[str, tuple[Option, Any]]:
    """The rows of the table and their defaults, by name."""
    return {row.name: (row.metadata["option"], row.default) for row in fields(cls) if "option" in row.metadata}


#: What ``host_budget`` means for a factorization beside what it means for every call.
HOST_BUDGET_OF_L = "Of an L in a file so much is kept."


@cache
def _choices(name: str) -> tuple[str, ...]:
    """The words that the table has for an option."""
    choices: tuple[str, ...] = option_table(FactorOptions)[name][0].choices
    return choices


#: Options for comparison with the paper, which no command has.
FROM_PYTHON_ALONE = frozenset({"precision_rule"})


@_documented
@dataclass(frozen=True)
class FactorOptions:
    """Options of a factorization, before anything is resolved against a matrix or a machine."""

    tile_size: int | None = _row(
        None,
        "int or None",
        "Order of a tile; by default chosen by size and budget. Small matrices are one tile.",
        parse=count,
        metavar="NB",
    )
    devices: str | Sequence[str] | int | None = _common("devices")
    memory_budget: int | str | None = _common("memory_budget")
    host_budget: int | str | None = _common("host_budget", HOST_BUDGET_OF_L)
    policy: str = _choice(
        ("planned", "sync", "async", "v1", "v2", "v3"),
        "How tiles move; it never changes the result. All but the first are those of the paper, for comparison.",
    )
    objective: str = _choice(("seconds", "bytes"), "What the plan makes least; bytes where no rates are known.")
    fp64: str = _choice(
        ("auto", "native", "residue"),
        "Products in the device's arithmetic, or through residues on int8 units, as accurate; by default the faster ones.",
    )
    moduli: int | None = _row(
        None,
        "int or None",
        "Moduli of residues, from 4 to 16; by default as accurate as the device's arithmetic, or as precision_threshold.",
        parse=count,
        metavar="COUNT",
    )
    precision_threshold: float | None = _row(
        None,
        "float or None",
        "Mixed precision: most of ``||A - L L.T||_F / ||A||_F``, such as 1e-6, certified. By default all is FP64.",
        parse=float,
        metavar="SHARE",
    )
    precision_rule: str = _choice(
        ("unit-roundoff", "paper"), "A format's error: its unit roundoff, or as in the paper its machine epsilon, twice that."
    )
    half_products: bool | None = _row(
        None,
        "bool or None",
        "Run small products of mixed precision in FP16. By default where rates say that this is faster.",
        parse=_half_products,
        metavar="{yes,no}",
    )
    strict: bool = _row(
        True,
        "bool",
        "Compute in FP64 what misses precision_threshold; else give it, with a :class:`~ooc_chol.errors.PrecisionWarning`.",
    )
    dtype: str | None = _row(
        None,
        "str, dtype or None",
        "Type of L: float64, float32, complex128 or complex64. By default float64, and complex128 for a complex A.",
        metavar="TYPE",
    )

    def __post_init__(self) -> None:
        if self.devices is not None and isinstance(self.devices, Sequence) and not isinstance(self.devices, str):
            object.__setattr__(self, "devices", tuple(self.devices))
        if self.tile_size is not None:
            self._make_whole("tile_size", "give an int, or None to let the planner choose")
            if self.tile_size < 1:
                raise ValueError(f"tile_size is {self.tile_size}, but a tile has at least 1 row")
        for name in ("memory_budget", "host_budget"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, checked_bytes(value, name))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", type_named(self.dtype).dtype.name)
        self._check_choice("policy")
        self._check_choice("objective")
        self._check_choice("fp64")
        if self.moduli is not None:
            self._make_whole("moduli", "give an int, or None")
            ResidueBasis(self.moduli)  # refuses a number that cannot be had
        self._check_choice("precision_rule")
        if not (self.half_products is None or isinstance(self.half_products, bool)):
            raise ValueError(f"half_products is {self.half_products!r}; give True, False, or None to choose by rates")
        if self.precision_threshold is not None:
            self._check_precision(self.precision_threshold)
        if self.fp64 == "residue" and self.policy != "planned":
            raise ValueError(f"policy {self.policy!r} orders tiles of native FP64; products through residues have 'planned' only")

    def _make_whole(self, name: str, advice: str) -> None:
        """Let an option that is a number, of NumPy's say, be an int."""
        object.__setattr__(self, name, whole_number(getattr(self, name), name, advice))

    def _check_choice(self, name: str) -> None:
        """Refuse a word that the table does not have."""
        value, choices = getattr(self, name), _choices(name)
        if value not in choices:
            *others, last = map(repr, choices)
            raise ValueError(f"{name} is {value!r}; there are {', '.join(others)} and {last}")

    def _check_precision(self, threshold: object) -> None:
        """Refuse a threshold that makes no sense, and policies that store tiles before they are final."""
        if isinstance(threshold, bool) or not isinstance(threshold, Real):
            raise TypeError(f"precision_threshold is a {type(threshold).__name__}; give a number such as 1e-6, or None for FP64")
        if not 0.0 < float(threshold) < 1.0:
            raise ValueError(f"precision_threshold is {threshold!r}, but it must be more than 0 and less than 1, such as 1e-6")
        if self.policy in ("sync", "async"):
            raise ValueError(
                f"policy {self.policy!r} stores half-updated tiles, which formats would round; take 'v1' to 'v3' or 'planned'"
            )

    @classmethod
    def add_arguments(
        cls,
        parser: argparse._ActionsContainer,
        *,
        aliases: Mapping[str, Sequence[str]] | None = None,
        more: Mapping[str, str] | None = None,
        without: Collection[str] = (),
    ) -> None:
        """Add a word for every option to a command line: ``--tile-size``, ``--devices``, ..., ``--no-strict``.

        Parameters
        ----------
        parser : argparse.ArgumentParser
            The parser of a command, or a group of its arguments.
        aliases : mapping of str to sequence of str, optional
            More words for some options, by the names of these.
        more : mapping of str to str, optional
            Words that the help of a command says of some options beside, by the names of these.
        without : collection of str
            Names of options that the command does not have; they keep their defaults. ``precision_rule`` has no word.

        Examples
        --------
        >>> import argparse, ooc_chol as oc
        >>> parser = argparse.ArgumentParser()
        >>> oc.FactorOptions.add_arguments(
        ...     parser, aliases={"tile_size": ["--nb"]}
        ... )
        >>> options = oc.FactorOptions.from_arguments(
        ...     parser.parse_args(["--nb", "512", "--fp64", "residue"])
        ... )
        >>> options.tile_size, options.fp64
        (512, 'residue')
        """
        for name, (row, default) in option_table(cls).items():
            if name not in without and name not in FROM_PYTHON_ALONE:
                row.add_word(parser, name, default, (aliases or {}).get(name, ()), (more or {}).get(name, ""))

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace, **others: Any) -> Self:
        """Make the options that a command line asks for.

        Parameters
        ----------
        arguments : argparse.Namespace
            Arguments that a parser with :meth:`add_arguments` found.
        **others
            Fields that a subclass has beside.

        Returns
        -------
        FactorOptions
            With the defaults of options that were not named.

        Raises
        ------
        ValueError, TypeError
            An option makes no sense; the text names it.
        """
        table = option_table(cls).items()
        return cls(**{name: getattr(arguments, name, default) for name, (_, default) in table}, **others)

    def __repr__(self) -> str:
        """Those that are not the defaults."""
        return one_line(self, {row.name: value for row in fields(self) if (value := getattr(self, row.name)) != row.default})

    def keywords(self) -> dict[str, Any]:
        """Return the options as :func:`cholesky` and :func:`plan` take them.

        Returns
        -------
        dict
            Values by the names of options.
        """
        return {name: getattr(self, name) for name in option_table(self)}


#: Types of values that are told apart by value and type.
_PLAIN = frozenset({type(None), bool, int, float, str})
_made = lru_cache(maxsize=64, typed=True)(FactorOptions)


def options_of_call(**given: Any) -> FactorOptions:
    """The options of a call, checked once for the same plain values."""
    return _made(**given) if _PLAIN.issuperset(map(type, given.values())) else FactorOptions(**given)


#: What the front doors of a factorization say of all their options.
ROWS_OF_A_CALL = {
    **{name: row for name, (row, _) in option_table(FactorOptions).items()},
    "store": with_more(
        "store",
        'A Zarr group by a name in ``.zarr``, or a URL. ``"device"`` keeps L on the GPUs, ``"host"`` in host memory.',
        type='path, HostMemory, "device", "host" or None',
    ),
    "checkpoint": with_more("checkpoint", "It is L in the end; True is ``store``.", type="path, bool or None"),
    "plan": with_more("plan", "It is of a matrix of this order and kind of source.", type="Plan, ClusterPlan or None"),
}
