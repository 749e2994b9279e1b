"""Parts shared by ``bisect`` and ``partition``: the graph read, the files written, and the messages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.shared.pictures import check_picture
from ooc_chol.apps.spectral.cli.columns import read_column, read_coordinates
from ooc_chol.apps.spectral.cli.options import (
    FORCE,
    GRAPH_HELP,
    add_force,
    add_search,
    add_solver,
    add_trace,
    save_trace,
    solver_options,
)
from ooc_chol.apps.spectral.graphs.files import PARTITIONS, write_partition
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.sources import as_graph, read_graph
from ooc_chol.apps.spectral.pictures import PICTURES, partition_figure, save_figure, spectral_coordinates
from ooc_chol.apps.spectral.results import Partition


def add_graph(parser: argparse.ArgumentParser) -> None:
    """Add the graph that is read."""
    parser.add_argument("graph", type=Path, metavar="GRAPH", help=GRAPH_HELP)
    parser.add_argument("--one-based", action="store_true", help="vertices of a list of edges are counted from 1")


def add_partition_options(parser: argparse.ArgumentParser) -> None:
    """Add files that are written, and how a partition is found."""
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the part of every vertex here, one a line")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the parts, as .png, .svg or another format")
    places = "places of the vertices in the picture: .npy, or two or three columns of text (default: two eigenvectors)"
    parser.add_argument("--coordinates", type=Path, metavar="FILE", help=places)
    weights = "weights of the vertices, a number a line or .npy (default: those of the graph)"
    parser.add_argument("--vertex-weights", type=Path, metavar="FILE", help=weights)
    add_trace(parser)
    add_force(parser)
    add_search(parser)
    add_solver(parser)


def check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or may not be replaced, before anything is read."""
    if options.coordinates is not None and options.picture is None:
        raise ValueError("--coordinates are those of a picture: add --picture, or leave them out")
    if options.picture is not None:
        check_picture(options.picture)
    outputs = [
        tb.Output("--output", options.output, PARTITIONS),
        tb.Output("--picture", options.picture, PICTURES),
        tb.Output("--trace", options.trace, tb.TRACE_FILES),
    ]
    inputs = {"GRAPH": options.graph, "--coordinates": options.coordinates, "--vertex-weights": options.vertex_weights}
    tb.check_outputs(outputs, inputs.items(), replace=options.force, ask=FORCE)


def read(options: argparse.Namespace) -> Graph:
    """The graph, with the weights of vertices that were given."""
    graph = as_graph(oc.edge_list(options.graph, base=1)) if options.one_based else read_graph(options.graph)
    if options.vertex_weights is None:
        return graph
    return as_graph(graph, vertex_weights=read_column(options.vertex_weights, graph.n, "weights of vertices"))


def tell(options: argparse.Namespace, graph: Graph, partition: Partition) -> None:
    """Write and print what came of it."""
    options.answer = _figures(options, graph, partition)
    print(partition)
    if options.output is not None:
        write_partition(options.output, partition.labels, replace=options.force)
        print(f"the part of every vertex is in {options.output}")
    if options.picture is not None:
        figure = partition_figure(graph, partition.labels, _places(options, graph), title=_title(options, graph, partition))
        save_figure(figure, options.picture, replace=options.force)
        print(f"the parts are drawn in {options.picture}")
    save_trace(options, partition.trace)


def _places(options: argparse.Namespace, graph: Graph) -> Any:
    """Places of the vertices: the caller's, or two eigenvectors."""
    if options.coordinates is not None:
        return read_coordinates(options.coordinates, graph.n)
    solver = {name: value for name, value in solver_options(options).items() if name not in ("host_budget", "trace", "progress")}
    return spectral_coordinates(graph, **solver)


def _title(options: argparse.Namespace, graph: Graph, partition: Partition) -> str:
    """Title above the picture."""
    return f"{options.graph.name}: {graph.n:,} vertices in {partition.n_parts} parts, edges of weight {partition.cut:,.10g} cut"


def _figures(options: argparse.Namespace, graph: Graph, partition: Partition) -> dict[str, Any]:
    """Figures of the parts, as plain data."""
    return {
        "graph": options.graph,
        "n": graph.n,
        "n_edges": graph.n_edges,
        "n_parts": partition.n_parts,
        "cut": partition.cut,
        "sizes": partition.sizes,
        "target_sizes": partition.target_sizes,
        "imbalance": partition.imbalance,
        "eigenvalues": partition.eigenvalues,
        "residuals": partition.residuals,
        "candidates": partition.candidates,
        "report": partition.report.to_dict(),
        "output": options.output,
        "picture": options.picture,
        "trace": options.trace if partition.trace is not None else None,
    }
