"""A graph convolutional network in two layers: class probabilities are softmax(P relu(P X W1) W2), P = D^-1/2 (A + I) D^-1/2.

Numbers are those of Kipf and Welling (2017), "Semi-supervised classification with graph convolutional networks": 16 hidden
features, dropout 0.5 of features and hidden ones, Adam with rate 0.01, weight decay 5e-4 in the first layer, 200 epochs, Glorot's
start, rows of X that add up to 1. Both P and X are sparse, and so is the dropped-out X of each epoch.

``--graph FILE.npz`` reads a citation graph such as Cora or CiteSeer: ``edges`` (m, 2), each once; the sparse features as
``feature_indptr``, ``feature_indices``, ``feature_data`` and ``shape``; ``labels`` (n,), -1 where there is none; vertex numbers
``train`` and ``test``. Without it a graph of so many vertices is made, whose neighbours and features tend to be of one class.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy, dropout

from ooc_chol.diff.torch import CSR

HIDDEN, DROPOUT, LEARNING_RATE, DECAY = 16, 0.5, 0.01, 5e-4


class Task(NamedTuple):
    """What is learned from, and what is asked."""

    P: CSR  #: (n, n) the graph, normalized
    X: CSR  #: (n, features) rows add up to 1
    labels: torch.Tensor  #: (n,)
    train: torch.Tensor  #: vertices whose labels are known
    test: torch.Tensor  #: vertices whose labels are asked

    def to(self, device: str) -> Task:
        """The task on a device."""
        return Task(*(each.to(device) for each in self))


def adjacency(edges: np.ndarray, n: int) -> csr_array:
    """The symmetric matrix of a graph of n vertices, with a one for each edge."""
    a, b = edges[edges[:, 0] != edges[:, 1]].T
    found = csr_array((np.ones(2 * a.size, np.float32), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(n, n))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def task(edges: np.ndarray, features: csr_array, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> Task:
    """Normalize the graph and the features."""
    n = features.shape[0]
    loops = np.stack([np.arange(n)] * 2)
    A = CSR.of(adjacency(edges, n)) + CSR.of(csr_array((np.ones(n, np.float32), loops)))
    by_degree = A.row_sums() ** -0.5
    X = CSR.of(features.astype(np.float32))
    rows = 1 / X.row_sums().clamp(min=torch.finfo(X.dtype).tiny)
    numbers = (torch.from_numpy(each.astype(np.int64)) for each in (labels, train, test))
    return Task(A.scale(rows=by_degree, columns=by_degree), X.scale(rows=torch.where(rows.isfinite(), rows, 0)), *numbers)


def read_task(path: Path) -> Task:
    """A citation graph from its file."""
    with np.load(path) as file:
        features = csr_array((file["feature_data"], file["feature_indices"], file["feature_indptr"]), shape=tuple(file["shape"]))
        return task(file["edges"], features, file["labels"], file["train"], file["test"])


def made_task(n: int, *, classes: int = 6, degree: int = 4, words: int = 20, vocabulary: int = 500) -> Task:
    """A graph whose edges stay in their class 8 times out of 10, and whose words are of their class every second time."""
    random = np.random.default_rng(0)
    labels = random.integers(classes, size=n)
    members = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[members], np.arange(classes + 1))
    begin = np.arange(n).repeat(degree // 2)
    own = members[random.integers(starts[labels[begin]], starts[labels[begin] + 1])]
    end = np.where(random.random(begin.size) < 0.8, own, random.integers(n, size=begin.size))
    theirs = labels[:, None] + classes * random.integers(vocabulary // classes, size=(n, words))
    drawn = np.where(random.random((n, words)) < 0.5, theirs, random.integers(vocabulary, size=(n, words)))
    features = csr_array((np.ones(n * words), drawn.ravel(), words * np.arange(n + 1)), shape=(n, vocabulary))
    features.sum_duplicates()
    known, asked = np.split(random.permutation(n), [20 * classes])
    return task(np.stack([begin, end], axis=1), features, labels, known, asked)


def glorot(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    """Weights of a layer, uniform and as large as Glorot and Bengio (2010) say."""
    most = (6 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-most, most).to(device).requires_grad_()


def network(task: Task, W1: torch.Tensor, W2: torch.Tensor, *, training: bool) -> torch.Tensor:
    """(n, classes) logits; sparse times dense from right to left."""
    X = CSR(dropout(task.X.values, DROPOUT, training), task.X.pattern)
    hidden = torch.relu(task.P @ (X @ W1))
    return task.P @ (dropout(hidden, DROPOUT, training) @ W2)


def accuracy(task: Task, seed: int, epochs: int) -> float:
    """Train from one seed, and count what of the test is right."""
    torch.manual_seed(seed)
    device = task.P.device
    W1, W2 = glorot(task.X.shape[1], HIDDEN, device), glorot(HIDDEN, int(task.labels.max()) + 1, device)
    adam = torch.optim.Adam([{"params": [W1], "weight_decay": DECAY}, {"params": [W2]}], lr=LEARNING_RATE)
    for _ in range(epochs):
        adam.zero_grad()
        logits = network(task, W1, W2, training=True)
        cross_entropy(logits[task.train], task.labels[task.train]).backward()
        adam.step()
    with torch.no_grad():
        found = network(task, W1, W2, training=False).argmax(1)
    return (found[task.test] == task.labels[task.test]).double().mean().item()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train from several seeds, and say how much of the test was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=3000, help="vertices of a graph that is made (default: 3000)")
    parser.add_argument("--graph", type=Path, help="file of a citation graph; without it one is made")
    parser.add_argument("--epochs", type=int, default=200, help="epochs (default: 200)")
    parser.add_argument("--seeds", type=int, default=5, help="how often to train (default: 5)")
    parser.add_argument("--device", default="cpu", help="device of torch (default: cpu)")
    options = parser.parse_args(arguments)

    given = (made_task(options.n) if options.graph is None else read_task(options.graph)).to(options.device)
    n, features = given.X.shape
    print(f"P is {n} x {n} with {given.P.nnz} entries, X has {given.X.nnz} in {features} columns")
    start = time.perf_counter()
    found = [accuracy(given, seed, options.epochs) for seed in range(options.seeds)]
    seconds = time.perf_counter() - start
    print("right of the test, by seed: " + " ".join(f"{each:.3f}" for each in found))
    print(f"mean {np.mean(found):.4f}; an epoch took {1e3 * seconds / (options.seeds * options.epochs):.3g} ms")


if __name__ == "__main__":
    main()
