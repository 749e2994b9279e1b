"""All figures of README and documents that a release measures anew, from the result files.

Tables between marks are made as by ``--update`` of their cases. A figure in running text, or in a table with words between, is a
*quote*: a piece of a page as it stands there, with ``{}`` for each figure. ``--check`` writes nothing and fails where a page says
other figures than its files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from benchmarks import running, table
from benchmarks.running import RESULTS, ROOT, Options, link_from

#: Commands that make the tables between marks.
TABLES = (
    "table --update docs/measurements.md docs/ablation.md",
    "geostat_fits --update docs/measurements.md",
    "geostat_peers --update docs/measurements.md",
    "cluster_model_machines --update docs/measurements.md",
    "eigen_precision --name host --update docs/eigenpairs.md",
    "imputation_when --update docs/imputation.md",
    "partitions --update docs/spectral.md",
    "partition_parts --update docs/spectral.md",
    "segments --update docs/spectral.md",
)
README, MEASUREMENTS, NOTES = "README.md", "docs/measurements.md", "docs/lab-notes.md"
_FIGURE = r"(-?\d(?:[\d.,]*\d)?(?:e-?\d+)?)"


class Quote(NamedTuple):
    """A piece of a page with ``{}`` for each figure, and the figures; ``](results/`` leads to the folder of result files."""

    page: str
    text: str
    figures: tuple[str, ...]

    def pattern(self) -> re.Pattern[str]:
        """The piece with any figures, in lines of any length."""
        text = self.text.replace("](results/", f"]({link_from(ROOT / self.page)}/")
        return re.compile(re.escape(text).replace(r"\ ", r"\s+").replace(r"\{\}", _FIGURE))

    def written(self, content: str) -> str:
        """A page with these figures in the place of others."""
        found = list(self.pattern().finditer(content))
        if len(found) != 1:
            raise ValueError(f"{self.page} has the piece {len(found)} times, not once: {self.text}")
        for number in range(len(self.figures), 0, -1):
            start, end = found[0].span(number)
            content = content[:start] + self.figures[number - 1] + content[end:]
        return content


@cache
def result(name: str) -> Any:
    """A result file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def one(lines: Iterable[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one line with these values, or with what a function of theirs takes."""
    (found,) = (
        line
        for line in lines
        if all(want(line.get(name)) if callable(want) else line.get(name) == want for name, want in wanted.items())
    )
    return found


def seconds(value: float) -> str:
    """Seconds in a table: two decimals, one from 10 on, three below 0.1."""
    return f"{value:.3f}" if value < 0.0995 else f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def dense() -> Iterator[Quote]:
    """Factorizations on GPUs."""
    fast, large, native = (result(f"h200-{name}") for name in ("residue-131072-32g", "residue-250000-112g", "native-131072-24g"))
    four, four_native = result("h200x4-residue-163840"), result("h200x4-native-163840")
    peers = [peer for path in sorted(RESULTS.glob("h200-*.json")) for peer in result(path.stem)["peers"]]
    best = max(peer["tflops"] for peer in peers if peer["name"].startswith("cuSOLVER"))
    whole = fast["n"] ** 3 / 3e12 / median(fast["wall_seconds"])
    text = (
        "Order {} in {} GiB of an H200, half of L's bytes: [{} TFLOP/s](results/h200-residue-131072-32g.json), "
        "cuSOLVER {} with all"
    )
    figures = f"{fast['n']:,}", f"{fast['budget_bytes'] / 2**30:.0f}", f"{whole:.0f}", f"{best:.0f}"
    yield Quote(README, text, figures)
    text = "- **Residues on one GPU** reach {} TFLOP/s at order {}, and {} at {}."
    yield Quote(MEASUREMENTS, text, tuple(f(each) for each in (large, fast) for f in (_tflops, _order)))
    shown = table.newest(filter(table.on_gpu, table.load()))
    single = [each for each in shown if len(each["devices"]) == 1 and each["engine"] == "residue"]
    off = max(abs(each["predicted_seconds"] / median(each["seconds"]) - 1) for each in single)
    yield Quote(MEASUREMENTS, "Residues on one GPU are predicted within {} %.", (f"{100 * off:.0f}",))
    exposed = max(each["exposed_copy_share"] for each in shown)
    yield Quote(MEASUREMENTS, "compute streams stand still for them in at most {} % of the time.", (f"{100 * exposed:.1f}",))
    text = "- **Native FP64** reaches {} of DGEMM on one GPU, and {} on four."
    yield Quote(MEASUREMENTS, text, (_of_dgemm(native), _of_dgemm(four_native)))
    large = result("h200-residue-163840-48g")
    figures = (table.over_peer(each, "cuSOLVER") for each in (large, four, four_native))
    text = (
        "residues are {} times as fast at order 163,840 as its best, and on four GPUs {} times as fast as cuSOLVERMg, "
        "native FP64 {}."
    )
    yield Quote(MEASUREMENTS, text, tuple(figures))
    worst = max(each["residual"]["max_scaled_over_sqrt_n"] for each in shown)
    yield Quote(MEASUREMENTS, "of 200 sampled blocks is at most {}; the bound is 4.", (f"{worst:.2f}",))
    figures = (f"{table.joules_per_tflop(each):.1f}" for each in (native, fast))
    yield Quote(MEASUREMENTS, "take {} J for 10¹² flops in native FP64, and {} through residues.", tuple(figures))
    text = "[{} TFLOP/s](results/h200-residue-131072-32g.json), native FP64 at [{}](results/h200-native-131072-24g.json)"
    yield Quote("docs/residues.md", text, (_tflops(fast), _tflops(native)))
    yield from guide_sizes()


def _tflops(found: dict[str, Any]) -> str:
    return f"{found['tflops']:.1f}"


def _order(found: dict[str, Any]) -> str:
    return f"{found['n']:,}"


def _of_dgemm(found: dict[str, Any]) -> str:
    return f"{2 * found['tflops'] / sum(found['dgemm_tflops'].values()):.3f}"


def guide_sizes() -> Iterator[Quote]:
    """Times of one evaluation, by the rates of results."""
    names = "host-fp64-file", "h200-native-131072-24g", "h200-residue-131072-32g"
    host, native, residues = (1e12 * result(name)["tflops"] for name in names)
    rows = (
        (5_000, "{} s | | |", host),
        (10_000, "{} s | | |", host),
        (20_000, "{} s | | |", host),
        (50_000, "{} min | | |", 60 * host),
        (100_000, "{} min | {} s | {} s |", 60 * host, native, residues),
        (200_000, "| {} s | {} s |", native, residues),
    )
    for n, text, *rates in rows:
        times = [n**3 / 3 / rate for rate in rates]
        figures = [f"{4e-9 * n**2:.1f}" if n < 50_000 else f"{4e-9 * n**2:.0f}"]
        figures += [f"{each:.2f}" if each < 0.995 else f"{each:.1f}" if each < 9.95 else f"{each:.0f}" for each in times]
        yield Quote("docs/geostat-guide.md", f"| {n:,} | {{}} GB | {text}", tuple(figures))


def types() -> Iterator[Quote]:
    """Complex numbers and float32."""
    double, native, single = (
        result(f"types/h200-{name}-host") for name in ("complex128-residue", "complex128-native", "float32-residue")
    )
    for found, name, how in ((double, "complex128", "residues, 14 moduli"), (single, "float32", "residues, 7 moduli")):
        start = f"| [{name}, {_order(found)}](results/types/h200-{name}-residue-host.json) | {how}"
        text = f"{start} | **{{}} s** | {{}} TFLOP/s | {{}} s |"
        figures = seconds(found["wall_seconds"][-1]), f"{found['tflops']:.0f}", seconds(found["peers"][0]["seconds"][0])
        yield Quote(MEASUREMENTS, text, figures)
    text = "](results/types/h200-complex128-native-host.json) | native | {} s | {} TFLOP/s | |"
    yield Quote(MEASUREMENTS, text, (seconds(native["wall_seconds"][-1]), _tflops(native)))
    figures = seconds(single["wall_seconds"][-1]), seconds(single["peers"][0]["seconds"][0])
    yield Quote(README, "[{} s](results/types/h200-float32-residue-host.json) | cuSOLVER {} s |", figures)


def kriging() -> Iterator[Quote]:
    """The front page's data set."""
    ours, theirs = result("geostat/modis-vecchia-host"), result("geostat/modis-peers-host")["peers"]["GPBoost"]
    found = one(ours["models"], model="half-constant")
    places = f"{found['n']:,}", f"{found['held_out']:,}"
    yield Quote(README, "{} satellite temperatures, and {} [predicted]", places)
    text = (
        "[{} s](results/geostat/modis-vecchia-host.json) for the temperatures, predictions included; "
        "GPBoost [{} s](results/geostat/modis-peers-host.json)"
    )
    yield Quote(README, text, (f"{found['seconds']['all']:.0f}", f"{theirs['seconds']['all']:.0f}"))


def eigenpairs() -> Iterator[Quote]:
    """Eigenpairs of graphs on H200s."""
    page = "docs/eigenpairs.md"
    for scale, k, name, linked in ((22, 8, "h200-22", True), (25, 8, "h200-25", True), (25, 24, "h200-25", False)):
        graph = f"[by degree](results/eigen/{name}.json)" if linked else "by degree"
        yield Quote(page, f"| {scale}, {graph} | {k} | {{}} | {{}} | {{}} | {{}} |", tuple(map(seconds, _pairs(name, scale, k))))
    fast, _, theirs, _ = _pairs("h200-25", 25, 24)
    text = "24 pairs of a graph of a billion entries take [{} s](results/eigen/h200-25.json), by CuPy {}."
    yield Quote(README, text, (f"{fast:.1f}", f"{theirs:.1f}"))
    fast, _, theirs, _ = _pairs("h200-25", 25, 8)
    yield Quote(
        README, "[{} s](results/eigen/h200-25.json) | CuPy {} s | {} s |", tuple(map(seconds, (fast, theirs, _walls("eigsh", 2))))
    )
    files = [result(f"eigen/{name}")["lines"] for name in ("h200-22", "h200-25")]
    ours, float32, float64 = (
        max(line["residual"] for lines in files for line in lines if line["what"] == what and line["precision"] in kinds)
        for what, kinds in (("ours", ("FDF", "DDD")), ("cupy", ("float32",)), ("cupy", ("float64",)))
    )
    text = "By degree, residuals at scales 22 and 25 are at most {} in ours, {} in CuPy's float32, and {} in its float64."
    yield Quote(page, text, tuple(_short(each, ".1e") for each in (ours, float32, float64)))
    lines = result("eigen/h200x2")["lines"]
    both = (one(lines, what="ours", devices=devices)["seconds"][-1] for devices in (["cuda:0", "cuda:1"], "cuda:0"))
    yield Quote(page, "[{} s in place of {}](results/eigen/h200x2.json)", tuple(map(seconds, both)))
    again = {isinstance(line["devices"], list): line["seconds"][-1] for line in result("eigen/h200x4-26-streamed")["lines"]}
    yield Quote(
        page, "[{} s instead of {}](results/eigen/h200x4-26-streamed.json)", (seconds(again[True]), seconds(again[False]))
    )


def _pairs(name: str, scale: int, k: int) -> tuple[float, ...]:
    """Second calls for so many pairs: ours in FDF and DDD, CuPy's in float32 and float64."""
    lines = result(f"eigen/{name}")["lines"]
    kinds = ("ours", "FDF"), ("ours", "DDD"), ("cupy", "float32"), ("cupy", "float64")
    on_graph = [line for line in lines if line["graph"].startswith(f"rmat({scale},")]
    return tuple(one(on_graph, what=what, precision=precision, k=k)["seconds"][-1] for what, precision in kinds)


def gradients() -> Iterator[Quote]:
    """Sparse operations with gradients."""
    page = "docs/differentiable.md"
    found = result("diff/h200-products")["measured"]

    def of(name: str, file: str = "h200-products") -> float:
        """Milliseconds."""
        return 1e3 * median(result(f"diff/{file}")["measured"][name]["seconds"])

    both, torch = of("forward and backward"), of("torch.sparse.mm forward and backward")
    entries = f"{found['pattern']['entries'] / 1e6:.0f}"
    text = "with {} million entries, forward and backward, takes [{} ms](results/diff/h200-products.json), `torch.sparse.mm` {}."
    yield Quote(README, text, (entries, f"{both:.2f}", f"{torch:.1f}"))
    yield Quote(README, "[{} ms](results/diff/h200-products.json) | torch {} ms |", (f"{both:.2f}", f"{torch:.1f}"))
    yield Quote(page, "[{} million entries](results/diff/h200-products.json)", (entries,))
    figures = (f"{of(name):.3f}" for name in ("kernel A x", "forward", "torch CSR forward"))
    yield Quote(page, "| `A @ x` | {} | {} | torch {} |", tuple(figures))
    kernels = of("kernel A x") + of("kernel sampled") + of("kernel A.T g")
    yield Quote(page, "| forward and backward | {} | {} | torch {} |", (f"{kernels:.3f}", f"{both:.3f}", f"{torch:.1f}"))
    ours, theirs = of("epoch", "h200-gcn"), of("torch-geometric's epoch", "h200-gcn")
    text = "[epoch of a graph network](results/diff/h200-gcn.json) | | {} | torch-geometric {} |"
    yield Quote(page, text, (f"{ours:.2f}", f"{theirs:.2f}"))
    ours, theirs = of("kernel A x", "h200-panels"), of("torch CSR forward (cuSPARSE, row-major)", "h200-panels")
    yield Quote(page, "[64 columns](results/diff/h200-panels.json) | {} | | cuSPARSE {} |", (f"{ours:.2f}", f"{theirs:.2f}"))
    ours, theirs = of("kernel forward", "h200-spgemm"), of("torch CSR forward", "h200-spgemm")
    text = "[`A @ A`](results/diff/h200-spgemm.json), 1024 x 1024 | {} | | torch {} |"
    yield Quote(page, text, (f"{ours:.3f}", f"{theirs:.2f}"))
    solve = 1e3 * median(result("diff/h200-solves")["measured"]["cuDSS"]["all"]["factor and solve"])
    text = "[solve](results/diff/h200-solves.json), 1024 x 1024, float64, plan kept | | {} | |"
    yield Quote(page, text, (f"{solve:.0f}",))


def imputation() -> Iterator[Quote]:
    """Steps of an imputation."""
    cases = result("tensors/h200")["cases"]
    ours, cold, theirs = (
        1e3 * min(one(cases, size="4039x50x50", **what)["seconds"])
        for what in (
            {"kernel": "threshold", "svt": "subspace"},
            {"kernel": "threshold", "svt": "gram64"},
            {"peer": "cupy eigh"},
        )
    )
    yield Quote(
        README,
        "[{} ms](results/tensors/h200.json) after others, {} at first; CuPy's `eigh` {}.",
        (f"{ours:.1f}", f"{cold:.0f}", f"{theirs:.0f}"),
    )
    page = "docs/imputation.md"
    for name in ("h200-facebook", "h200-2100x64x64", "h200-2600x512x512"):
        run = one(result(f"imputation/{name}")["runs"], share=0.9)
        yield Quote(
            page, f"](results/imputation/{name}.json) | 90 % | {{}} | {{}} |", (f"{run['error']:.1e}", f"{run['seconds']:.2f}")
        )
    schedule = [each for each in result("imputation/host-when")["runs"] if each["case"] == "schedule"]
    slow, usual, still = (
        one(schedule, decay=decay, shrinkage="garrote", momentum=momentum)
        for decay, momentum in ((0.7, 0.7), (0.5, 0.7), (0.5, 0))
    )
    text = "`decay=0.7, n_lambdas=40` takes {} steps instead of {}, and leaves an error of {} instead of {} ("
    figures = (str(slow["steps"]), str(usual["steps"]), *(f"{each['error']:.1e}" for each in (slow, usual)))
    yield Quote(page, text, figures)
    yield Quote(page, "without it the error at 0.5 is {}.", (f"{still['error']:.1e}",))
    first, both = (each["seconds"] for each in result("imputation/h200x2-2600x512x512")["runs"])
    text = "](results/imputation/h200x2-2600x512x512.json), one takes {} in that run | 90 % | | {} |"
    yield Quote(page, text, (f"{first:.1f}", f"{both:.1f}"))


def _walls(measured: str, count: int, file: str = "h200x2") -> float:
    """Seconds of a second call on so many GPUs, the median."""
    return float(median(one(result(f"several_gpus/{file}")["lines"], measured=measured, count=count)["walls"][1:]))


#: Rows of the table of several GPUs, and what they measured; those with a column for four GPUs.
ROWS = {
    "FP64 through residues, n = 163,840, 48 GiB each": "residue 48 GiB",
    "FP64 through residues, n = 131,072": "residue",
    "FP64, native, n = 131,072": "native",
    "FP64 by default, n = 65,536": "default",
    "the same, n = 32,768": "default 32768",
    'mixed, "ex 10", 1e-5, n = 131,072': "strong 1e-5",
    'mixed, "ex 200", 1e-5, n = 131,072': "weak 1e-5",
    "`eigsh`, R-MAT of scale 25, k = 8, FDF": "eigsh",
    "`impute`, 1,300 x 512 x 512, FFF": "impute",
    "log-likelihood and gradient, n = 105,569": "gradient",
    "kriging of 42,227 places from them": "kriging",
}


def several_gpus() -> Iterator[Quote]:
    """Whole calls on one GPU, two and four."""
    with_four = {line["measured"] for line in result("several_gpus/h200x4")["lines"]}
    for row, measured in ROWS.items():
        first, two = _walls(measured, 1), _walls(measured, 2)
        figures, text = [seconds(first), seconds(two), f"{first / two:.2f}"], "{} | {} | {} |"
        if measured in with_four:
            first, four = (_walls(measured, count, "h200x4") for count in (1, 4))
            figures += [seconds(first), seconds(four), f"{first / four:.2f}"]
            text += " {} | {} | {} |"
        yield Quote(MEASUREMENTS, f"| {row} | {text}", tuple(figures))
    line = one(result("several_gpus/h200x4")["lines"], measured="weak 400,000")
    (bound,) = re.findall(r"error at most (\S+)", line["page"])
    text = "order 400,000 at 1e-5 takes {} s, the first time {}; L takes {} bytes an entry, and the bound is {}."
    figures = [seconds(line["walls"][1]), seconds(line["walls"][0]), f"{line['bytes_per_entry']:.2f}", f"{float(bound):.1e}"]
    yield Quote("docs/mixed-precision.md", text, tuple(figures))
    whole = result("wall/h200-function-65536")["lines"][0]["medians"]
    text = "[{} s](results/wall/h200-function-65536.json) | cuSOLVER {} s | {} s |"
    figures_of = whole["ours"], whole["made whole, cuSOLVER in place"], _walls("default", 2)
    yield Quote(README, text, tuple(map(seconds, figures_of)))
    text = "[{} s](results/several_gpus/h200x2.json) | | {} s |"
    yield Quote(README, text, (seconds(_walls("impute", 1)), seconds(_walls("impute", 2))))
    four = _walls("residue 48 GiB", 4, "h200x4")
    text = "later ones keep it: [{} s](#several-gpus-every-system) at order 163,840 on one GPU, and {} s on four."
    yield Quote(MEASUREMENTS, text, (seconds(_walls("residue 48 GiB", 1)), seconds(four)))
    one_gpu, two = seconds(_walls("gradient", 1)), seconds(_walls("gradient", 2))
    yield Quote("docs/geostat-guide.md", "take [{} s](results/several_gpus/h200x2.json) on an H200.", (one_gpu,))
    text = "for 105,569 values takes [{} s](results/several_gpus/h200x2.json), with one {} s."
    yield Quote("docs/decisions/0013-solves-and-passes.md", text, (two, one_gpu))
    text = "where one takes {}, {} and {} s."
    yield Quote(README, text, tuple(seconds(_walls(name, 1)) for name in ("default", "eigsh", "impute")))


#: Rows of the table of the other systems: what they measured, the peer on two cores and that beside a GPU, and what is quoted of
#: the results of ours and the peer, on two cores and there.
SYSTEMS = {
    "| 6 pairs, n = 1,000 | {} s | SciPy {} s | | {} s | CuPy {} s |": ("eigsh small", "SciPy", "CuPy", ""),
    "| 8 pairs, R-MAT 16 | {} s | SciPy {} s | | {} s | CuPy {} s |": ("eigsh graph", "SciPy", "CuPy", ""),
    "| 6 lowest, 200 x 200 grid | {} s | SciPy, a shift {} s | residuals {}, {}; {}, {} | {} s | SciPy, a shift {} s |": (
        "eigsh low",
        "SciPy, sigma=-1e-3",
        "SciPy, sigma=-1e-3",
        ".0e",
    ),
    "| 6 triplets, 40,000 x 10,000 | {} s | SciPy {} s | | {} s | CuPy {} s |": ("svds", "SciPy", "CuPy", ""),
    "| mesh of 20,000, 8 parts | {} s | scikit-learn, AMG {} s | cuts {}, {}; {}, {} | {} s | scikit-learn, AMG {} s |": (
        "partition",
        "scikit-learn, amg",
        "scikit-learn, amg",
        ",.0f",
    ),
    "| coins, 240 x 160 | {} s | scikit-image, superpixels {} s | segments {}, {}; {}, {} "
    "| {} s | scikit-image, superpixels {} s |": (
        "segments",
        "scikit-image, 400 superpixels",
        "scikit-image, 400 superpixels",
        ".0f",
    ),
    "| 200 matrices, a fifth missing | {} s | scikit-learn, nearest {} s | errors {}, {}; {}, {} "
    "| {} s | scikit-learn, nearest {} s |": (
        "impute",
        "scikit-learn",
        "scikit-learn",
        ".2g",
    ),
}


def _again(file: str, measured: str, peer: str) -> tuple[str, str]:
    """Second calls of ours and of a peer."""
    again = one(result(f"systems/{file}")["lines"], measured=measured)["again"]
    ours = next(value for name, value in again.items() if name.startswith("ours"))
    return seconds(ours), seconds(again[peer])


def _found(file: str, measured: str, peer: str, form: str) -> tuple[str, str]:
    """Results of ours and of a peer."""
    line = one(result(f"systems/{file}")["lines"], measured=measured)
    (found,) = (value for name, value in line.items() if name not in ("measured", "size", "first", "again"))
    return _short(found["ours"], form), _short(found[peer], form)


def _short(value: float, form: str) -> str:
    """A number whose exponent has no zeros in front."""
    return re.sub(r"e([+-])0*", lambda match: "e-" if match[1] == "-" else "e", format(value, form))


def systems() -> Iterator[Quote]:
    """Every system on two cores and on a GPU."""
    for text, (measured, peer, beside, form) in SYSTEMS.items():
        here, there = ("host-systems", measured, peer), ("h200-systems", measured, beside)
        results = (*_found(*here, form), *_found(*there, form)) if form else ()
        yield Quote(MEASUREMENTS, text, (*_again(*here), *results, *_again(*there)))
    text = (
        "| logdet, 90,000; on the H200 1,000,000 | {} s with gradient | SuperLU {} s without | | {} s | ours on the host {} s |"
    )
    figures = _again("host-systems", "logdet", "SuperLU, the value alone"), _again("h200-systems", "logdet", "ours on the host")
    yield Quote(MEASUREMENTS, text, (*figures[0], *figures[1]))


def registers() -> Iterator[Quote]:
    """Products that are reduced in registers, beside those whose sums are stored."""
    lines = result("residue_rates/h200-registers")["lines"]

    def both(get: Callable[[dict[str, Any]], str], **wanted: Any) -> tuple[str, ...]:
        return tuple(get(one(lines, form=form, **wanted)) for form in ("int8", "int32"))

    large, short = (both(_tflops, shape=[2048, 16384, k]) for k in (32768, 8192))
    text = "reach {} TFLOP/s against {} with int32 sums at K = 32,768, and {} against {} at 8192."
    yield Quote(NOTES, text, (*large, *short))
    text = "A whole call of order 131,072 takes {} s against {} and {} J against {}."
    walls, joules = (both(get, measured="residue 131,072") for get in (_mean_wall, lambda line: f"{line['joules']:,.0f}"))
    yield Quote(NOTES, text, (*walls, *joules))


def _mean_wall(line: dict[str, Any]) -> str:
    return seconds(sum(line["walls"]) / len(line["walls"]))


def sparse() -> Iterator[Quote]:
    """Passes over packed matrices, beside cuSPARSE, SciPy and the link."""
    page, found = "docs/sparse.md", {name: result(f"sparse/{name}") for name in ("h200-degree-22", "host-passes-20")}
    for name, columns, precision, dtype, row in (
        ("h200-degree-22", 1, "FDF", "float64", "| one H200, [scale 22](results/sparse/h200-degree-22.json) | 1, FDF |"),
        ("h200-degree-22", 8, "FDF", "float64", "| the same | 8, FDF |"),
        ("h200-degree-22", 1, "DDD", "float64", "| the same | 1, DDD |"),
        ("host-passes-20", 1, "DDD", None, "| two cores, [scale 20](results/sparse/host-passes-20.json) | 1, DDD |"),
        ("host-passes-20", 8, "DDD", None, "| the same | 8, DDD |"),
    ):
        ours = one(found[name]["passes"], columns=columns, precision=precision, bytes_a_pass=0)["pass_seconds"]
        peer = min(one(found[name]["peers"], columns=columns, dtype=dtype)["seconds"])
        who = "SciPy" if dtype is None else "cuSPARSE"
        yield Quote(page, f"{row} {{}} ms | {who} {{}} ms |", (_milliseconds(ours), _milliseconds(peer)))
    single = min(one(found["h200-degree-22"]["peers"], columns=1, dtype="float32")["seconds"])
    yield Quote(page, "In float32 cuSPARSE takes {} ms with one column.", (_milliseconds(single),))
    streamed = result("sparse/h200x2-degree-27")["passes"]
    rows = {
        "| 8 GiB of one H200, [scale 27](results/sparse/h200x2-degree-27.json) | 1, FDF |": (["cuda:0"], 1, 2**33),
        "| the same of each of two | 1, FDF |": (["cuda:0", "cuda:1"], 1, 2**33),
        "| 16 GiB of one | 8, FDF |": (["cuda:0"], 8, 2**34),
    }
    for row, (devices, columns, budget) in rows.items():
        each = one(streamed, devices=devices, columns=columns, budget_bytes=budget)
        figures = _milliseconds(each["pass_seconds"]), f"{each['bytes_a_pass'] / 1e9:.1f}", f"{each['share_of_link']:.3f}"
        yield Quote(page, f"{row} {{}} ms | {{}} GB at {{}} of the link |", figures)
    cold = one(found["host-passes-20"]["passes"], columns=1, tier="file", is_cold=True)
    figures = f"{cold['budget_bytes'] / 1e6:.0f}", _milliseconds(cold["pass_seconds"]), f"{cold['share_of_bound']:.2f}"
    yield Quote(page, "| two cores, {} MB, from a file | 1, DDD | {} ms | {} of disk and product |", figures)


def _milliseconds(value: float) -> str:
    return f"{1e3 * value:.2f}" if value < 0.00995 else f"{1e3 * value:.0f}"


def host() -> Iterator[Quote]:
    """Whole calls and plans on the host."""
    lines = result("wall/host-2-cores")["lines"]
    small = (line for line in lines if line["n"] <= 300)
    more = max(1e3 * line["medians"]["ours"] * (1 - 1 / line["ours_over_fastest"]) for line in small)
    text = "ours takes at most {} ms more than LAPACK up to order 300, and {} of its time at 8,000."
    yield Quote(MEASUREMENTS, text, (f"{more:.1f}", f"{one(lines, n=8000)['ours_over_fastest']:.2f}"))
    cases = result("planning/planning")["cases"]
    names = "residue, 64 rows, 1 GPU", "mixed, 64 rows, 1 GPU", "auto, 128 rows, 4 GPUs"
    plans = [min(cases[name]["processor_seconds"]) for name in names]
    kept = [1e3 * min(cases[name]["kept_wall_seconds"]) for name in names]
    text = (
        "[{} s](results/planning/planning.json) of a processor, in mixed precision {}, and of 262,144 on four GPUs {} s. "
        "A later call of the same shape finds it in {} ms, in mixed precision in {} ("
    )
    yield Quote(MEASUREMENTS, text, (*(f"{each:.2f}" for each in plans), f"{kept[0]:.1f}", f"{kept[1]:.0f}"))


def tutorial() -> Iterator[Quote]:
    """Whole calls beside the fastest peer of each."""
    page = "docs/tutorial.md"
    for name, n, row in (
        ("host-2-cores", 1_000, "| two cores, A and L in memory | [{}](results/wall/host-2-cores.json) | {} s | NumPy {} s |"),
        ("host-2-cores", 8_000, "| the same | {} | {} s | SciPy {} s |"),
        ("h200-cupy", 32_768, "| one H200, A and L on it | [{}](results/wall/h200-cupy.json) | {} s | CuPy {} s |"),
        (
            "h200-function-65536",
            65_536,
            "| the same, A a function | [{}](results/wall/h200-function-65536.json) | {} s | cuSOLVER {} s |",
        ),
    ):
        medians = one(result(f"wall/{name}")["lines"], n=n)["medians"]
        ours, peer = medians["ours"], min(each for who, each in medians.items() if who != "ours")
        yield Quote(page, row, (f"{n:,}", seconds(ours), seconds(peer)))
    found = result("h200-residue-131072-32g")
    text = "| the same, in {} GiB | [{}](results/h200-residue-131072-32g.json) | {} s | |"
    yield Quote(page, text, (f"{found['budget_bytes'] / 2**30:.0f}", _order(found), seconds(median(found["wall_seconds"]))))


def mixed() -> Iterator[Quote]:
    """Mixed precision over FP64, and what certified answers cost."""
    page, rows = "docs/mixed-precision.md", {"ex 200, weak": "ex 200", "ex 50": "ex 50", "ex 10, strong": "ex 10"}
    families = result("mixed_families/h100-65536")["families"]
    for row, family in (rows | {"rq 30": "rq 30", "rq 3000": "rq 3000"}).items():
        over = (families[family][name]["over_fp64"] for name in ("0.001", "1e-05", "1e-07", "1e-08", "1e-09", "1e-11", "1e-13"))
        yield Quote(page, f"| {row} |" + " {} |" * 7, tuple(f"{each:.2f}" for each in over))
    large = result("mixed_families/h100-131072")["families"]["ex 200"]
    figures = (f"{large[name]['over_fp64']:.2f}" for name in ("1e-05", "1e-08"))
    yield Quote(page, "it is {} at 1e-5 and {} at 1e-8 ([file](results/mixed_families/h100-131072.json)).", tuple(figures))
    places = {"h200-65536": "65,536, 8 GiB, L in host memory", "h200-65536-device": "65,536, L on the GPU"}
    for name, place in (places | {"h200-131072-device": "131,072, L on the GPU"}).items():
        found = result(f"certified/{name}")["ranges"]["0.02627"]
        costs = [
            seconds(median(found[how][f"{what}_seconds"][1:]))
            for how in ("None", "1e-05")
            for what in ("factor", "logdet", "certify")
        ]
        text = f"| {place} ([file](results/certified/{name}.json)) | FP64 |" + " {} s |" * 3 + " | | 1e-5 |" + " {} s |" * 3
        yield Quote("docs/certified.md", text, tuple(costs))


def clusters() -> Iterator[Quote]:
    """Runs on two workers, and predictions for machines of eight GPUs."""
    counted = [line for line in result("cluster/h200x2-98304")["lines"] if line.get("is_counted")]
    one_process, *others = (one(counted, workers=workers)["seconds"] for workers in (0, 1, 2))
    for text, each in zip(("one, with two H200s", "two, with an H200 each"), others, strict=True):
        row = f"| 98,304 | {text} | {{}} s | {{}} s | [file](results/cluster/h200x2-98304.json) |"
        yield Quote("docs/cluster.md", row, (f"{each:.2f}", f"{one_process:.2f}"))
    yield Quote(
        "docs/cluster.md", "an H200 each reach [{}](#speed) of the speed of one process", (f"{one_process / others[-1]:.2f}",)
    )
    counted = [line for line in result("cluster/h200x2-131072")["lines"] if line.get("is_counted")]
    figures = [f"{one(counted, workers=workers)['seconds']:.2f}" for workers in (1, 0)]
    row = "| 131,072 | one, with two H200s | {} s | {} s | [file](results/cluster/h200x2-131072.json) |"
    yield Quote("docs/cluster.md", row, tuple(figures))
    ways = (result("cluster/h200x2-products")[way] for way in ("cluster", "one"))
    taken = (seconds(median(each["seconds"] for each in calls)) for calls in ways)
    yield Quote(
        "docs/cluster.md", "an H200 each take it [{} s](results/cluster/h200x2-products.json), one process {}.", tuple(taken)
    )
    counted = [line for line in result("cluster/h200x4-98304")["lines"] if line.get("is_counted")]
    figures = [f"{one(counted, workers=workers)['seconds']:.2f}" for workers in (2, 0)]
    row = "| 98,304 | two, with two H200s each | {} s | {} s | [file](results/cluster/h200x4-98304.json) |"
    yield Quote("docs/cluster.md", row, tuple(figures))
    lines = result("cluster/machines")["lines"]
    cases = (1, 400e9), (8, 400e9), (8, 25e9)
    figures = (one(lines, n=700_000, machines=machines, network=network)["seconds"] for machines, network in cases)
    text = "to take one machine of eight H100s {} s, and eight of them {} s at 400 GB/s, {} at 25."
    yield Quote("docs/cluster.md", text, tuple(f"{each:.0f}" for each in figures))


def cuts() -> Iterator[Quote]:
    """Cuts beside METIS's, as the guide has them, and segments on a GPU."""
    whole = [result("spectral/h200-segments")["images"][f"coins {size}"]["whole"] for size in ("600x450", "1920x1080")]
    taken = [seconds(each) for found in whole for each in (found["seconds"], found["again"]["seconds"])]
    text = "600 x 450 take {} s at the first call of a process and {} s at the second, 1920 x 1080 {} and {} s."
    yield Quote("docs/spectral.md", text, tuple(taken))
    guide = (ROOT / "docs/spectral.md").read_text(encoding="utf-8")
    (ratio,) = re.findall(r"^\| ratio to METIS \|  \| ([\d.]+) \| 1.000 ", guide, flags=re.MULTILINE)
    yield Quote(README, "ours cut [{}](results/spectral/host-walshaw.json) of the edges", (ratio,))


QUOTED: tuple[Callable[[], Iterator[Quote]], ...] = (
    dense,
    host,
    tutorial,
    types,
    kriging,
    eigenpairs,
    gradients,
    imputation,
    several_gpus,
    systems,
    registers,
    sparse,
    mixed,
    clusters,
    cuts,
)


def quotes() -> Iterator[Quote]:
    """All quotes."""
    for each in QUOTED:
        yield from each()


def pages() -> dict[str, str]:
    """Pages with quotes as their files want them."""
    found: dict[str, str] = {}
    for quote in quotes():
        content = found.get(quote.page) or (ROOT / quote.page).read_text(encoding="utf-8")
        found[quote.page] = quote.written(content)
    return found


TAKES = {"check": False}


def run(options: Options) -> int:
    """Write the figures, or name the lines that have others."""
    for command in () if options.check else TABLES:
        running.main(command.split())
    wrong = []
    for page, content in pages().items():
        old = (ROOT / page).read_text(encoding="utf-8")
        both = zip(old.splitlines(), content.splitlines(), strict=True)
        wrong += [f"{page}:{number}: {new}" for number, (line, new) in enumerate(both, 1) if line != new]
        if not options.check:
            (ROOT / page).write_text(content, encoding="utf-8")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong and options.check:
        print("so it is by the result files: python -m benchmarks quote")
    return int(bool(wrong) and options.check)
