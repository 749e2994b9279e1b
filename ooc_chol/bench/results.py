"""Result files: one JSON file for each measured claim, with the commit and the machine that it was measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_chol.api.devices import devices as list_devices
from ooc_chol.bench.case import Fp64Case
from ooc_chol.config import commit_override
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.report import FactorReport
from ooc_chol.files.outputs import FileKind, output_file, output_folder
from ooc_chol.kernels.host.blas import blas_identity, current_threads

#: Kind of the files that a new result may replace.
RESULT_FILES = FileKind("result of ooc-chol bench", b'{\n "case": "', endings=(".json",))

#: Packages whose versions are recorded where they are installed.
_PACKAGES = ("numpy", "scipy", "nvmath-python", "torch")


@dataclass(frozen=True)
class Measured:
    """All that was measured of one case, but for its peers."""

    case: Fp64Case  #: What was to be measured
    covariance: str  #: Name of the matrix, in words
    runs: Sequence[Mapping[str, Any]]  #: Each repeat: the report's figures, the meter's, and ``wall_seconds``
    engine: str  #: The engine that ran, where the case says ``"auto"`` too
    residual: Mapping[str, Any]  #: What :meth:`CholeskyFactor.residual` finds for the last factor, as data
    logdet: float  #: Log-determinant of the last factor
    ceilings: Mapping[str, Any]  #: ``dgemm_tflops`` and, for residues, ``product_tflops``

    def to_dict(self, peers: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The content of the result file, with ``peers`` as :func:`ooc_chol.bench.peers.measure_peer` gives them."""
        case, last = self.case, self.runs[-1]
        seconds = [run["seconds"] for run in self.runs]
        budget = int(last["budget_bytes"])
        return {
            "case": case.name,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(case.on_gpu),
            "devices": list(case.devices),
            "n": case.n,
            "tile_size": case.tile_size,
            "engine": self.engine,
            **({"moduli": case.moduli} if self.engine == "residue" else {}),
            "precision_threshold": None,
            "policy": case.policy,
            "covariance": self.covariance,
            "source": case.source,
            "budget_bytes": budget,
            "out_of_core": 2 * budget * len(case.devices) <= case.factor_bytes,
            "warm_up": case.warms_up,
            "seconds": seconds,
            "wall_seconds": [run["wall_seconds"] for run in self.runs],
            "setup_seconds": [run["setup_seconds"] for run in self.runs],
            "predicted_seconds": last["predicted_seconds"],
            "tflops": case.n**3 / 3e12 / float(np.median(seconds)),
            **self.ceilings,
            "bytes": last["bytes"],
            "residual": dict(self.residual),
            "logdet": self.logdet,
            "exposed_copy_share": float(np.median([run["exposed_copy_share"] for run in self.runs])),
            **{name: [run[name] for run in self.runs] for name in _METERED if name in last},
            "peers": [dict(peer) for peer in peers],
        }


#: Figures of a GPU meter, one for each repeat.
_METERED = ("joules", "joules_each", "device_bytes", "device_bytes_each", "clock_mhz")


def run_figures(report: FactorReport) -> dict[str, Any]:
    """Figures of a report as result files have them: seconds of each part under a name of their own."""
    seconds = report.seconds
    return report.to_dict() | {
        "seconds": report.inside_seconds,
        "wall_seconds": seconds.total,
        "predicted_seconds": seconds.predicted,
        "setup_seconds": seconds.parts["setup"],
        "norms_seconds": seconds.parts["norms"],
        "certify_seconds": seconds.parts["certificate"],
    }


def engine_of(case: Fp64Case, factor: CholeskyFactor) -> str:
    """The engine that made ``factor``: the case's own, or what ``"auto"`` chose, by the arithmetic key."""
    if case.engine != "auto":
        return case.engine
    return "residue" if "residue" in str(factor.arithmetic_key["engine"]) else "native"


def write_json(content: Mapping[str, Any], path: Path) -> Path:
    """Write ``content``, which begins with its ``case``, to ``path``, whose folder is made; a result is replaced at the end."""
    output_folder(path.parent)
    with output_file(path, kind=RESULT_FILES, ask="") as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def commit() -> str:
    """Commit of the checkout, ``OOC_CHOL_COMMIT`` where there is no git, else "unknown"."""
    if (named := commit_override()) is not None:
        return named
    try:
        words = ["git", "rev-parse", "HEAD"]
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine(with_gpus: bool) -> dict[str, Any]:
    """Devices and versions; ``with_gpus`` those of CUDA too."""
    about: dict[str, Any] = {
        "devices": [str(device) for device in list_devices().devices],
        "cores": os.cpu_count(),
        "blas": blas_identity(),
        "threads": current_threads(),
        "python": platform.python_version(),
    }
    about |= versions(_PACKAGES)
    if with_gpus:
        from ooc_chol.bench.cuda import devices

        about |= devices.versions()
    return about


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
