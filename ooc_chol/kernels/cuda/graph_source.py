"""The source of the kernels that make random graphs, with the constants that they share with the host's."""

from __future__ import annotations

from importlib.resources import files

from ooc_chol.tasks.random_graphs import DRAW_BITS, DRAWS, GOLDEN, MULTIPLIERS, ROUNDS, SHIFTS, WORDS, EdgeDraw

#: Threads of a block, and sorted entries that one looks at; as in the source.
THREADS, ENTRIES = 256, 4096


def source(draw: EdgeDraw) -> str:
    """CUDA C for graphs of this scale and kind; seed and thresholds are arguments of its kernels."""
    names: dict[str, int | str] = {
        "SCALE": draw.scale,
        "IS_RMAT": int(draw.thresholds is not None),
        "IS_DIRECTED": int(draw.directed),
        "BUCKET_BITS": draw.bucket_bits,
        "FOLD": draw.fold,
        "WORDS": WORDS,
        "DRAWS": DRAWS,
        "DRAW_BITS": DRAW_BITS,
        "GOLDEN": f"{GOLDEN:#x}ull",
    }
    names |= {f"SHIFT_{number}": shift for number, shift in enumerate(SHIFTS)}
    names |= {f"MULTIPLIER_{number}": f"{each:#x}ull" for number, each in enumerate(MULTIPLIERS)}
    names |= {f"ROUND_{number}": f"{each:#x}u" for number, each in enumerate(ROUNDS)}
    code = files("ooc_chol.kernels.cuda").joinpath("graphs.cu").read_text(encoding="utf-8")
    return "".join(f"#define {name} {value}\n" for name, value in names.items()) + code
