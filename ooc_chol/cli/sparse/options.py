"""Parts shared by several commands of ``ooc-chol sparse``: options, sources, and figures of a matrix."""

from __future__ import annotations

import argparse
import errno
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.calls.options import add_words
from ooc_chol.cli.outputs import FORCE
from ooc_chol.memory.block_files import PACKED_FILES, is_packed_file
from ooc_chol.sparse.sources import rows_of
from ooc_chol.tasks.row_blocks import ValueKind

SOURCE_HELP = (
    "a packed matrix (.oocsr), SciPy's .npz, Matrix Market (.mtx), METIS (.graph), a list of edges (.txt, .csv, .tsv, .edges, "
    ".el), or a folder of indptr.npy, indices.npy and, where there are values, data.npy"
)


def add_packed_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that writes a packed matrix."""
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.oocsr", help="write the packed matrix here")
    parser.add_argument("--block-bytes", help="bytes of a block, such as '64 MiB' (default: a 64th of the matrix, 16 to 256 MiB)")
    parser.add_argument(FORCE, action="store_true", help="replace a file that is no packed matrix, too, but never the source")


def check_packed_output(arguments: argparse.Namespace, source: Path | None = None) -> None:
    """Refuse an output that cannot be written, or may not be replaced, before anything is read or made."""
    output = tb.Output("--output", arguments.output, PACKED_FILES)
    tb.check_outputs([output], [("SOURCE", source)], replace=arguments.force, ask=FORCE)


def add_order(parser: argparse.ArgumentParser) -> None:
    """Add how rows and columns are numbered."""
    text = "number rows and columns by descending degree, for faster products (default: as they are)"
    parser.add_argument("--order", choices=("degree",), help=text)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add what is to be known of some sources."""
    group = parser.add_argument_group("what the source leaves open")
    group.add_argument("--zeros", choices=("keep", "drop"), default="keep", help="entries that are zero (default: keep)")
    group.add_argument("--one-based", action="store_true", help="vertices of a list of edges are counted from 1")
    group.add_argument(
        "--directed", action="store_true", help="an edge of a list is one entry, (row, column), not (column, row) too"
    )


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Add where a command computes, and with how much memory."""
    add_words(parser, ("devices", "memory_budget"))


def opened(arguments: argparse.Namespace, source: Path, stack: ExitStack) -> oc.BlockCSR:
    """A packed matrix in its file; or whatever else ``source`` is, packed in host memory until the stack ends."""
    return stack.enter_context(oc.block_csr(source_of(arguments, source), progress=not arguments.quiet))


def source_of(arguments: argparse.Namespace, source: Path) -> Any:
    """Source to pack or open: rows of a file in another format, the name of a packed one."""
    if is_packed_file(source):
        options = {
            "--zeros drop": arguments.zeros != "keep",
            "--one-based": arguments.one_based,
            "--directed": arguments.directed,
        }
        if given := [name for name, is_given in options.items() if is_given]:
            raise ValueError(f"{source} is a packed matrix, which has no use for {' and '.join(given)}: leave that out")
        return source
    if not source.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
    if arguments.one_based or arguments.directed:
        return oc.edge_list(source, base=1 if arguments.one_based else None, directed=arguments.directed, zeros=arguments.zeros)
    return rows_of(source, zeros=arguments.zeros)


def operator_of(arguments: argparse.Namespace, matrix: oc.BlockCSR) -> oc.BlockCSR | oc.Operator:
    """The matrix, or the Laplacian of it that was asked for."""
    if arguments.laplacian or arguments.normalized:
        return oc.laplacian(matrix, normalized=arguments.normalized)
    return matrix


def figures(matrix: oc.BlockCSR) -> dict[str, Any]:
    """Figures of a packed matrix, as plain data."""
    blocks = matrix.blocks.blocks
    kinds = {kind: [block for block in blocks if block.kind is kind] for kind in ValueKind}
    return {
        "path": matrix.path,
        "shape": matrix.shape,
        "nnz": matrix.nnz,
        "dtype": matrix.dtype.name,
        "longest_row": matrix.longest_row,
        "bytes": matrix.nbytes,
        "largest_block_bytes": matrix.blocks.largest_bytes,
        "blocks": len(blocks),
        "kinds": {
            kind.value: {
                "blocks": len(own),
                "entries": sum(block.n_entries for block in own),
                "bytes": sum(block.nbytes for block in own),
            }
            for kind, own in kinds.items()
            if own
        },
        "counts": asdict(matrix.counts),
        "rounded": matrix.rounded,
        "order": None if matrix.order is None else "degree",
    }
