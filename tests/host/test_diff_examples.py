"""What the paper's six applications reach, with operations of ooc_chol.diff.torch."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from tests.host.example_files import FOLDER, number

pytestmark = [pytest.mark.host, pytest.mark.package("torch")]


@pytest.fixture(autouse=True)
def one_torch_thread():
    """Sums of torch's own in one order on every machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def numbers(text, before):
    """All numbers of the rest of a line behind some words."""
    return [float(each) for each in re.findall(r"[\d.]*\d", text.split(before, 1)[1].splitlines()[0])]


def jacobi_weights(a, covariance):
    """The minimum of tr(A S C S.T), S = I - W D^-1 A, over diagonal W: a linear system for the weights."""
    b = a / np.diag(a)[:, None]
    return np.linalg.solve(a * (b @ covariance @ b.T), np.diag(b @ covariance @ a))


@pytest.mark.parametrize("errors", ["energy", "white"])
def test_jacobis_weights_are_those_that_the_loss_is_least_for(example, errors):
    _, told = example("diff_jacobi", f"--n 16 --errors {errors} --steps 600")
    a = 2 * np.eye(16) - np.eye(16, k=1) - np.eye(16, k=-1)
    exact = jacobi_weights(a, np.linalg.inv(a) if errors == "energy" else np.eye(16))
    np.testing.assert_allclose(numbers(told, "all of them: "), exact, atol=2e-3)
    assert number(told, "step leaves, learned") < number(told, "step leaves, weights 2/3")


def test_jacobis_weights_are_two_thirds_inside_and_more_at_both_ends(example):
    _, told = example("diff_jacobi")
    first, *inside, last = numbers(told, "all of them: ")
    assert len(inside) == 14 and max(abs(each - 2 / 3) for each in inside) <= 0.05
    assert min(first, last) > max(inside) + 0.05


def test_the_heavy_ball_is_as_good_as_the_best_of_a_grid(example):
    _, told = example("diff_heavy_ball")
    assert "after 12 steps" in told and "50 x 50" in told
    learned, least = (number(told, line.rsplit(":", 1)[0] + ": loss") for line in told.splitlines()[1:3])
    assert 0.9 < learned / least <= 1.05
    assert number(told, "learned over grid") == pytest.approx(learned / least, abs=2e-4)


def test_the_grid_is_what_each_pair_gives_alone(example):
    """The columns of the grid against dense steps with one pair."""
    import torch

    module, _ = example("diff_heavy_ball", "--n 8 --vectors 3")
    a = module.CSR.of(2 * np.eye(8) - np.eye(8, k=1) - np.eye(8, k=-1))
    x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alpha, beta, least = module.best_of_grid(a, x, 6)
    dense, now, before = a.to_dense().numpy(), x.numpy(), x.numpy()
    for _ in range(6):
        now, before = now - alpha * dense @ now + beta * (now - before), now
    assert least == pytest.approx(np.sum(now * (dense @ now)) / 3, rel=1e-10)


def test_the_preconditioner_saves_iterations(example):
    _, told = example("diff_preconditioner")
    plain, learned = told.splitlines()[1:3]
    assert numbers(plain, "without M")[0] == 23 and number(plain, "after 4:") == pytest.approx(0.112, abs=5e-4)
    assert numbers(learned, "with M")[0] < 23 and number(learned, "after 4:") < 0.112
    assert "M has 190" in told  # tridiagonal: 64 + 2 x 63


def test_a_made_graph_is_learned(example):
    _, told = example("diff_gcn")
    assert "P is 600 x 600" in told and number(told, "mean") > 0.8  # 1/6 by chance


@pytest.mark.parametrize(("graph", "least"), [("citeseer", 0.69), ("cora", 0.80)])
@pytest.mark.data
def test_citation_graphs_are_learned_as_kipf_and_welling_say(example, data_dir, graph, least):
    _, told = example("diff_gcn", f"--graph '{data_dir / graph}.npz'")
    found = numbers(told, "by seed: ")
    assert len(found) == 5 and number(told, "mean") == pytest.approx(np.mean(found), abs=1e-3)
    assert number(told, "mean") >= least


def test_learned_interfaces_beat_plain_schwarz(example):
    """And each radius is that of the dense iteration matrix."""
    import torch

    module, told = example("diff_domain_decomposition")
    plain, learned = number(told, "radius, plain RAS"), number(told, "radius, learned")
    assert learned < 0.75 < 0.9 < plain < 1
    parts = module.Subdomains.of(32, 8, 1, "cpu")
    with torch.no_grad():
        t = module.iterate(parts, parts.B, torch.eye(1024, dtype=torch.float64), 1).numpy()
    assert plain == pytest.approx(abs(np.linalg.eigvals(t)).max(), abs=1e-4)


def test_plain_schwarz_is_the_sum_over_subdomains(example):
    """The block-diagonal solve against the formula, one dense subdomain after the other, on parts of unlike sizes."""
    import torch

    module, _ = example("diff_domain_decomposition", "--n 49 --box 4 --epochs 0")
    parts = module.Subdomains.of(7, 4, 1, "cpu")
    a = module.poisson(7).toarray()
    row, column = np.divmod(np.arange(49), 7)
    m = np.zeros((49, 49))
    for top in (0, 4):
        for left in (0, 4):
            own = (row // 4 * 4 == top) & (column // 4 * 4 == left)
            points = np.flatnonzero(own | (a[:, own] != 0).any(axis=1))
            inverse = np.zeros((49, 49))
            inverse[np.ix_(points, points)] = np.linalg.inv(a[np.ix_(points, points)])
            m += own[:, None] * inverse
    found = module.iterate(parts, parts.B, torch.eye(49, dtype=torch.float64), 1).numpy()
    np.testing.assert_allclose(found, np.eye(49) - m @ a, atol=1e-13)


@pytest.mark.usefixtures("processes")
def test_domain_decomposition_is_sparse_all_the_way():
    """An epoch at 16,384 points in a process of its own: one dense matrix would have 2 GB."""
    program = f"""
import runpy, sys
from tests.inside.bench import memory_of_process
sys.argv[1:] = ["--n", "16384", "--epochs", "1"]
runpy.run_path({str(FOLDER / "diff_domain_decomposition.py")!r}, run_name="__main__")
print("most", memory_of_process("VmHWM") // 1024)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "N = 16384: B has" in told and number(told, "most") < 1.2e6  # kB, torch's libraries among them


@pytest.mark.parametrize(("n", "least"), [(8, 4.05235), (16, 18.54483)])
def test_the_approximate_inverse_is_the_best_on_its_pattern(example, n, least):
    _, told = example("diff_spai", f"--n {n}")
    assert number(told, "_F^2 =") == pytest.approx(least, rel=1e-2)
    assert number(told, "least squares") == pytest.approx(least, abs=1e-5)
    entries = [int(each) for each in re.findall(r"(\d+) entries", told)]
    assert entries == [n * n + 4 * n * (n - 1)] * 2


def test_parameters_of_a_field_are_found_within_their_errors(example):
    module, told = example("diff_gmrf", "--n 30")
    found = re.findall(r"^(log \w+) +(-?[\d.]+), standard error ([\d.]+);", told, flags=re.MULTILINE)
    assert tuple(name for name, *_ in found) == module.NAMES
    for (_, value, error), right in zip(found, module.TRUTH, strict=True):
        assert abs(float(value) - right) <= 3 * float(error) < 3


def test_the_likelihood_of_a_field_and_its_derivatives_are_those_of_its_dense_covariance(example):
    import torch

    module, _ = example("diff_gmrf", "--n 6")
    y = torch.from_numpy(np.random.default_rng(1).standard_normal(36))
    theta = torch.tensor([-0.7, 0.3, -0.4], dtype=torch.float64)

    def dense(theta):
        covariance = torch.linalg.inv(module.precision(theta, 6).to_dense()) + torch.exp(2 * theta[2]) * torch.eye(
            36, dtype=torch.float64
        )
        return (torch.logdet(covariance) + y @ torch.linalg.solve(covariance, y)) / 2

    def sparse(theta):
        return module.loss(theta, y, 6)

    for of in (lambda f: f(theta), lambda f: torch.func.grad(f)(theta), lambda f: torch.autograd.functional.hessian(f, theta)):
        torch.testing.assert_close(of(sparse), of(dense), rtol=1e-10, atol=1e-10)
