"""The checkpoint of a fit: a line of JSON for each evaluation, flushed at once, from which the same fit goes on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.model import exact_text
from ooc_chol.apps.geostat.covariances.model_content import number_of
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood
from ooc_chol.apps.geostat.estimation.objective import AbstractEvaluationMemory, Known
from ooc_chol.apps.geostat.estimation.search import SearchSpace

_FORMAT = "ooc-chol geostat evaluations"
_VERSION = 1
#: Bytes of a line: an evaluation with a thousand coefficients of the mean takes two thirds of that.
_MOST_BYTES = 32 << 20

#: Files that a fit goes on from.
LOGS = tb.FileKind("log of evaluations", f'{{"format": "{_FORMAT}"'.encode(), endings=(".jsonl", ".json", ".log", ".txt"))


@final
class EvaluationLog(AbstractEvaluationMemory):
    """Evaluations and starting points by line; those of an earlier run are found again.

    A last line that is cut off, as a run that was killed leaves it, is ignored. Close the log at the end. A disk that refuses
    ends the log but no fit: what was there stays, and :attr:`problem` says so.
    """

    def __init__(self, identity: Mapping[str, Any], path: Path | None, *, replace: bool = False) -> None:
        self._header = {"format": _FORMAT, "version": _VERSION, **identity}
        self._lines: dict[str, dict[str, Any]] = {}
        self._path = path
        self._stream: TextIO | None = None
        #: Why evaluations from some point on are not in the file.
        self.problem: str | None = None
        if path is None:
            return
        tb.check_outputs([tb.Output("checkpoint", path, LOGS)], replace=replace)
        if path.exists() and not replace:
            self._read(path)
        else:
            with tb.output_file(path, replace=replace, option="checkpoint") as new:
                new.write_text(_text(self._header), encoding="utf-8")
        self._stream = path.open("a", encoding="utf-8")

    @property
    def lasts(self) -> bool:
        return self._path is not None

    def find(self, space: SearchSpace[Any], point: NDArray[np.float64]) -> Known | None:
        return self.found("evaluation", space, point)

    def keep(self, space: SearchSpace[Any], point: NDArray[np.float64], known: Known, seconds: float) -> None:
        """Write an evaluation, and flush it."""
        self.kept("evaluation", space, point, known, seconds=seconds)

    def section(self, kind: str) -> AbstractEvaluationMemory:
        """The part of the log with evaluations of another function, such as an approximation."""
        return _Section(self, kind)

    def found(self, kind: str, space: SearchSpace[Any], point: NDArray[np.float64]) -> Known | None:
        """As :meth:`find`, of a kind of evaluation."""
        line = self._lines.get(_name(kind, space, point.tolist()))
        if line is None:
            return None
        try:
            return _known(line, space, point)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self._damaged(kind, line, error) from error

    def kept(self, kind: str, space: SearchSpace[Any], point: NDArray[np.float64], known: Known, *, seconds: float) -> None:
        """As :meth:`keep`, of a kind of evaluation."""
        self._keep(kind, space, point.tolist(), {"seconds": seconds, **_content(known)})

    def start(self, space: SearchSpace[Any], label: Any) -> NDArray[np.float64] | None:
        """Where the earlier run started this search, shape ``(k,)``, or None; the label is plain data."""
        line = self._lines.get(_name("start", space, label))
        if line is None:
            return None
        try:
            return _array(line["start"], (len(space.names),))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self._damaged("start", line, error) from error

    def _damaged(self, kind: str, line: Mapping[str, Any], error: Exception) -> ValueError:
        """Describe a line that does not say what one of its kind says."""
        why = f"it lacks {error}" if isinstance(error, KeyError) else f"{error!s:.200}"
        return ValueError(f"{self._path}: the {kind} at {line['at']!s:.100} is damaged ({why}); remove its line")

    def keep_start(self, space: SearchSpace[Any], label: Any, start: NDArray[np.float64]) -> None:
        """Write where a search starts, so that going on asks for the same points even where roundings differ."""
        self._keep("start", space, label, {"start": start.tolist()})

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError as error:
                self._give_up(error)

    def _keep(self, kind: str, space: SearchSpace[Any], at: Any, content: dict[str, Any]) -> None:
        line = {"kind": kind, **_place(space), "at": at, **content}
        self._lines[_name(kind, space, at)] = line
        self._write(line)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._stream is not None:
            try:
                self._stream.write(_text(line))
                self._stream.flush()
            except OSError as error:
                self._give_up(error)
                self.close()

    def _give_up(self, error: OSError) -> None:
        """Remember the first failure of the file."""
        self.problem = self.problem or f"{self._path} could not be written ({error.strerror}): later evaluations are not in it"

    def _read(self, path: Path) -> None:
        """Take over the lines of an earlier run; cut off the end where a line is not complete."""
        kept = list(tb.input_lines(path, _MOST_BYTES))
        cut_off = bool(kept) and not kept[-1].endswith(b"\n")
        complete = kept[: len(kept) - cut_off]
        lines = [_parsed(line, path, number) for number, line in enumerate(complete, start=1)]
        if not lines or lines[0].get("format") != _FORMAT or lines[0].get("version") != _VERSION:
            raise ValueError(f"{path} is not a log of evaluations of version {_VERSION}")
        first = lines[0]
        other = {name: (str(first.get(name)), str(now)) for name, now in self._header.items() if first.get(name) != now}
        if other:
            raise oc.errors.CheckpointError(str(path), other, "replace=True", "fit")
        for number, line in enumerate(lines[1:], start=2):
            try:
                place = json.dumps({"kind": line["kind"], **{key: line[key] for key in ("names", "template")}, "at": line["at"]})
            except KeyError as error:
                raise ValueError(f"line {number} of {path} lacks {error}; remove it") from error
            self._lines[place] = line
        if cut_off:  # now it is known for a log of this fit
            with tb.output_file(path, replace=True) as part:
                part.write_bytes(b"".join(complete))


@final
class _Section(AbstractEvaluationMemory):
    """One kind of evaluations in a log."""

    def __init__(self, log: EvaluationLog, kind: str) -> None:
        self._log, self._kind = log, kind

    @property
    def lasts(self) -> bool:
        return self._log.lasts

    def find(self, space: SearchSpace[Any], point: NDArray[np.float64]) -> Known | None:
        return self._log.found(self._kind, space, point)

    def keep(self, space: SearchSpace[Any], point: NDArray[np.float64], known: Known, seconds: float) -> None:
        """Write an evaluation, and flush it."""
        self._log.kept(self._kind, space, point, known, seconds=seconds)


def observations_digest(observations: Observations) -> str:
    """A digest of sites, values and design, so that a log is not resumed with other data."""
    digest = hashlib.sha256(json.dumps(observations.mean_columns).encode())
    errors = () if observations.error_variances is None else (observations.error_variances,)
    for array in (observations.coordinates, observations.values, observations.design, *errors):
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _text(line: Mapping[str, Any]) -> str:
    """A line of the file."""
    return json.dumps(line, allow_nan=False) + "\n"


def _place(space: SearchSpace[Any]) -> dict[str, Any]:
    """Key of a point: the names of its coordinates and of the kept parameters."""
    return {"names": list(space.names), "template": {"covariance": exact_text(space.template), "fixed nugget": space.nugget}}


def _name(kind: str, space: SearchSpace[Any], at: Any) -> str:
    return json.dumps({"kind": kind, **_place(space), "at": at})


def _content(known: Known) -> dict[str, Any]:
    """Everything about an evaluation; ``loglik`` is null when the matrix was not positive definite."""
    if known.likelihood is None:
        return {"loglik": None}
    content = {name: value for name, value in vars(known.likelihood).items() if name not in ("model", "seconds", "interval")}
    content |= {"variance": known.likelihood.model.variance, "gradient": known.gradient}
    if known.likelihood.interval is not None:
        content["interval"] = [end if math.isfinite(end) else None for end in known.likelihood.interval]
    content |= {"information": known.information, "gradient_error": known.gradient_error}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in content.items()}


def _known(line: Mapping[str, Any], space: SearchSpace[Any], point: NDArray[np.float64]) -> Known:
    """The evaluation that a line of a log tells."""
    if line["loglik"] is None:
        return Known(None)
    correlation, p, k = space.correlation(point), len(line["coefficients"]), len(space.names)
    variance = number_of(line["variance"])
    likelihood = Likelihood(
        loglik=number_of(line["loglik"]),
        model=correlation.with_values(variance=variance, nugget=variance * correlation.nugget),
        coefficients=_array(line["coefficients"], (p,)),
        coefficient_covariance=_array(line["coefficient_covariance"], (p, p)),
        quadratic=number_of(line["quadratic"]),
        logdet=number_of(line["logdet"]),
        seconds=number_of(line["seconds"]),
        reml=bool(line["reml"]),
        interval=_interval(line.get("interval")),
    )
    shapes = {"gradient": (k,), "information": (k, k), "gradient_error": (k,)}
    arrays = (None if line[name] is None else _array(line[name], shape) for name, shape in shapes.items())
    return Known(likelihood, *arrays)


def _interval(value: Any) -> tuple[float, float] | None:
    """An interval of a line, whose ends are null where nothing was certified; older logs have none."""
    if value is None:
        return None
    lower, upper = value
    return (-math.inf, math.inf) if lower is None and upper is None else (number_of(lower), number_of(upper))


def _array(value: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers of a line; none of them, whatever the shape, is an empty list."""
    array = np.array(value, dtype=np.float64)
    if array.shape != shape and not (array.size == 0 and 0 in shape):
        raise ValueError(f"there is an array of shape {array.shape}, not {shape}")
    if not np.isfinite(array).all():
        raise ValueError("a number of it is not finite")
    return array.reshape(shape)


def _parsed(text: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line as an object."""
    try:
        line = tb.parse_json(text.decode())
    except ValueError as error:
        raise ValueError(f"line {number} of {path} is not JSON: {error!s:.200}; remove it") from error
    if not isinstance(line, dict):
        raise ValueError(f"line {number} of {path} is not an evaluation; remove it")
    return line
