"""Domain decomposition with learned conditions at the interfaces, sparse all the way.

Poisson's equation on a square of N points, cut into square subdomains that overlap. Restricted additive Schwarz turns an error
x into T x = x - M A x, M being the sum over subdomains i of R~_i.T (R_i A R_i.T + L_i)^-1 R_i; R~_i keeps what i owns, and
plain RAS has L_i = 0. Here a small graph network writes the entries of L_i between points on the rim of a subdomain, and is
trained for the largest ||T^k x|| over random x, as in section 4.5 of Nytko et al. (2022), "Optimized sparse matrix operations
for reverse mode automatic differentiation", after Taghibakhshi et al. (2022), "Learning interface conditions in domain
decomposition solvers".

All subdomains together are one block-diagonal matrix B + L, and a step takes one sparse solve with it: its factor serves k steps
of the iteration, k steps of their derivative, and all columns. The network sees the rims of subdomains alone, so that what was
learned at N = 1,024 is used at any N (``--apply``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array, kron
from scipy.sparse.linalg import LinearOperator, eigs

from ooc_chol.diff.torch import CSR, solve

#: Steps of Adam, how far one goes at most at first, random vectors of each, and steps of the iteration that are trained through.
EPOCHS, LEARNING_RATE, VECTORS, ITERATIONS = 80, 3e-3, 4, 10
#: Features of a point in the network.
HIDDEN = 16


def poisson(side: int) -> csr_array:
    """Poisson's matrix on a square."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return csr_array(kron(line, eye_array(side)) + kron(eye_array(side), line))


def picks(places: np.ndarray, n: int) -> csr_array:
    """The matrix that takes some of n numbers."""
    return csr_array((np.ones(places.size), places, np.arange(places.size + 1)), shape=(places.size, n))


class Subdomains(NamedTuple):
    """A square cut in overlapping parts, and the block-diagonal matrix of all of them, whose points are counted part by part."""

    A: CSR  #: (N, N) the equation's matrix
    B: CSR  #: (n, n) R_i A R_i.T, one block after the other; n > N, since parts overlap
    R: CSR  #: (n, N) to each point of a part its number in the square
    back: CSR  #: (N, n) to each point of the square the one of the part that owns it
    rim: torch.Tensor  #: (n, 1) 1 at points that miss a neighbour in their part, else 0
    edges: torch.Tensor  #: places of the entries of B between two points of a rim
    ends: tuple[CSR, CSR]  #: for each of these the points that it joins, as matrices that pick them

    @classmethod
    def of(cls, side: int, box: int, overlap: int, device: str) -> Subdomains:
        """Squares of ``box`` points a side, and as many more around as the overlap says."""
        a = poisson(side)
        n = a.shape[0]
        row, column = np.divmod(np.arange(n), side)
        part = row // box * -(-side // box) + column // box
        members = csr_array((np.ones(n), (part, np.arange(n))))
        for _ in range(overlap):
            members = members @ abs(a)
        members.sort_indices()
        points, parts = members.indices, np.arange(members.shape[0]).repeat(np.diff(members.indptr))
        r = picks(points, n)
        entries = (r @ a @ r.T).tocoo()
        within = parts[entries.row] == parts[entries.col]
        b = csr_array((entries.data[within], (entries.row[within], entries.col[within])), shape=entries.shape)
        owned = np.flatnonzero(part[points] == parts)
        rim = np.diff(b.indptr) < np.diff(a.indptr)[points]
        B = CSR.of(b)
        edges = np.flatnonzero(rim[B.pattern.rows] & rim[B.pattern.indices])
        ends = (CSR.of(picks(each[edges], points.size)).to(device) for each in (B.pattern.rows, B.pattern.indices))
        back = picks(owned[np.argsort(points[owned])], points.size)
        matrices = (each.to(device) for each in (CSR.of(a), B, CSR.of(r), CSR.of(back)))
        numbers = (torch.from_numpy(each).to(device) for each in (rim[:, None] * 1.0, edges))
        return cls(*matrices, *numbers, tuple(ends))


class Network(torch.nn.Module):
    """Entries of L from the rims alone: two convolutions of points, then a perceptron for each edge. It begins with L = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.ModuleList(torch.nn.Linear(size, HIDDEN) for size in (1, HIDDEN))
        self.neighbours = torch.nn.ModuleList(torch.nn.Linear(size, HIDDEN) for size in (1, HIDDEN))
        last = torch.nn.Linear(HIDDEN, 1)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.edge = torch.nn.Sequential(torch.nn.Linear(2 * HIDDEN + 1, HIDDEN), torch.nn.ReLU(), last)
        self.double()

    def forward(self, parts: Subdomains) -> CSR:
        """B + L, on the pattern of B, and as symmetric."""
        B = parts.B
        normalized = B.scale(rows=1 / B.diagonal())
        points = parts.rim
        for own, neighbours in zip(self.own, self.neighbours, strict=True):
            points = torch.relu(own(points) + normalized @ neighbours(points))
        one, other = (end @ points for end in parts.ends)
        entries = self.edge(torch.cat([one + other, one * other, B.values[parts.edges, None]], dim=1))[:, 0]
        return CSR(B.values.index_copy(0, parts.edges, B.values[parts.edges] + entries), B.pattern)


def iterate(parts: Subdomains, local: CSR, x: torch.Tensor, steps: int) -> torch.Tensor:
    """T^k x: the errors after k steps with the local matrices."""
    for _ in range(steps):
        x = x - parts.back @ solve(local, parts.R @ (parts.A @ x), assume="symmetric")
    return x


def train(parts: Subdomains, epochs: int) -> tuple[Network, float]:
    """The network, and the seconds of an epoch."""
    torch.manual_seed(0)
    n, device = parts.A.shape[0], parts.A.device
    network = Network().to(device)
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    slower = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, epochs)
    random = torch.Generator().manual_seed(1)
    start = time.perf_counter()
    for _ in range(epochs):
        x = torch.rand(n, VECTORS, dtype=parts.A.dtype, generator=random).to(device)
        adam.zero_grad()
        left = iterate(parts, network(parts), x / x.norm(dim=0), ITERATIONS)
        left.norm(dim=0).max().log().backward()
        adam.step()
        slower.step()
    return network, (time.perf_counter() - start) / max(epochs, 1)


def spectral_radius(parts: Subdomains, local: CSR) -> float:
    """The largest magnitude among the eigenvalues of T, by Arnoldi's method."""
    n, device = parts.A.shape[0], parts.A.device

    def step(x: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(np.array(x, dtype=float).reshape(n, 1)).to(device)
        return iterate(parts, local, given, 1).reshape(n).cpu().numpy()

    operator = LinearOperator((n, n), matvec=step, dtype=np.float64)
    return float(abs(eigs(operator, k=1, which="LM", return_eigenvectors=False, v0=np.ones(n), tol=1e-7)[0]))


def compare(parts: Subdomains, network: Network) -> None:
    """Plain RAS and the learned one on a square."""
    print(f"N = {parts.A.shape[0]}: B has {parts.B.shape[0]} rows and {parts.B.nnz} entries, {len(parts.edges)} of them on rims")
    with torch.no_grad():
        for name, local in (("plain RAS", parts.B), ("learned", network(parts))):
            radius = spectral_radius(parts, local)
            print(f"spectral radius, {name:9s} {radius:.4f}: {np.log(0.1) / np.log(radius):.3g} steps for a digit")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on one square; compare there, and where that was asked, on another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1024, help="points of the square, N, a square number (default: 1024)")
    parser.add_argument("--box", type=int, default=8, help="points on a side of a subdomain (default: 8)")
    parser.add_argument("--overlap", type=int, default=1, help="points by which subdomains grow on all sides (default: 1)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"steps of Adam (default: {EPOCHS})")
    parser.add_argument("--apply", type=int, metavar="N", help="use what was learned on a square of N points, too")
    parser.add_argument("--device", default="cpu", help="device of torch (default: cpu)")
    options = parser.parse_args(arguments)

    sizes = [options.n] if options.apply is None else [options.n, options.apply]
    if any(round(n**0.5) ** 2 != n for n in sizes):
        parser.error(f"{sizes} should be square numbers, such as 1024 or 65536")
    network = None
    for n in sizes:
        parts = Subdomains.of(round(n**0.5), options.box, options.overlap, options.device)
        if network is None:
            network, seconds = train(parts, options.epochs)
            print(f"{options.epochs} epochs at N = {n}, {1e3 * seconds:.3g} ms each")
        compare(parts, network)


if __name__ == "__main__":
    main()
