"""Errors at what was held out: what they are of, what they warn of, and what is chosen by them."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.imputation import ConvolutionalImputer, held_out_error, neighbour_means, relative_error
from tests.apps.imputation.tensors_made import N, fourier, graph, tensor

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

MASK = oc.testing.random_mask((N, 12, 12), 0.85)
NOISE = np.random.default_rng(0).standard_normal((N, 12, 12)).astype(np.float32)


def kept_in(monkeypatch, *args, **options):
    """The masks of the fits that a call makes, and what it returns."""
    masks, real = [], oc.impute
    monkeypatch.setattr(oc, "impute", lambda X, mask, *rest, **how: masks.append(mask) or real(X, mask, *rest, **how))
    found = held_out_error(*args, **options)
    monkeypatch.undo()
    return masks, found


def test_errors_are_those_of_slices_that_one_more_fit_was_without(monkeypatch):
    x = tensor() + np.float32(3)
    (kept,), found = kept_in(monkeypatch, x, fourier(), MASK, share=0.2, n_lambdas=9)
    held = MASK & ~kept
    assert not (kept & ~MASK).any() and held.sum() == round(0.2 * MASK.sum())
    assert found.entries == 144 * held.sum() and found.share == held.sum() / MASK.sum()
    for count in (3, 9):
        again = oc.impute(x, kept, fourier(), n_lambdas=count)
        assert found.errors[count - 1] == pytest.approx(relative_error(again.tensor, x, held), rel=1e-6)
    assert found.constant == pytest.approx(relative_error(np.full_like(x, again.report.center), x, held))
    assert found.neighbours == pytest.approx(relative_error(neighbour_means(x, kept, graph()), x, held))
    assert found.lambdas == pytest.approx([0.5**number for number in range(9)])
    assert found.is_better and found.least == min(found.errors) == found.errors[found.best - 1]


def test_what_is_held_out_is_as_what_is_missing(monkeypatch):
    x, by_entry = tensor(), oc.testing.random_mask((N, 12, 12), 0.7, by="entry")
    both = by_entry.copy()
    both[::9] = False
    for mask, slices in ((by_entry, 0), (both, 7)):
        (kept,), found = kept_in(monkeypatch, x, fourier(), mask, n_lambdas=2)
        assert not (kept & ~mask).any()
        assert (mask.any(axis=(1, 2)) & ~kept.any(axis=(1, 2))).sum() == slices
        partly = kept.any(axis=(1, 2))
        assert np.isclose(kept[partly].sum() / mask[partly].sum(), 0.9, atol=0.01)
        assert found.entries == (mask & ~kept).sum()


def test_where_there_is_nothing_to_tell_there_are_no_errors():
    x, one = tensor(), np.arange(N) == 3
    for given, mask in ((x, np.ones(N, bool)), (x, one), (0 * x, MASK), (0 * x + 5, MASK)):
        assert held_out_error(given, fourier(), mask) is None
    for share, kind in ((0, ValueError), (1.0, ValueError), (np.nan, ValueError), ("half", TypeError)):
        with pytest.raises(kind, match="share"):
            held_out_error(x, fourier(), MASK, share=share)


def test_every_fit_has_them_in_its_report():
    fitted = ConvolutionalImputer(graph()).fit(tensor(), MASK)
    assert fitted.held_out_ == held_out_error(tensor(), fourier(), MASK) == fitted.imputed_.report.held_out
    assert fitted.held_out_.error < 0.1 < fitted.held_out_.neighbours
    assert "held out" in str(fitted.imputed_.report)
    assert fitted.imputed_.report.to_dict()["held_out"].items() >= asdict(fitted.held_out_).items()
    plain = ConvolutionalImputer(graph(), held_out=0).fit(tensor(), MASK)
    assert plain.held_out_ is None and plain.imputed_.report.to_dict()["held_out"] is None
    assert np.array_equal(plain.tensor_, fitted.tensor_)


def test_a_start_and_a_work_folder_leave_them_out_unless_they_are_asked_for(tmp_path):
    early = ConvolutionalImputer(fourier(), n_lambdas=9).fit(tensor(), MASK)
    assert ConvolutionalImputer(fourier(), n_lambdas=2).fit(tensor(), MASK, start=early.imputed_).held_out_ is None
    assert ConvolutionalImputer(fourier(), work_folder=tmp_path).fit(tensor(), MASK).held_out_ is None
    asked = ConvolutionalImputer(fourier(), work_folder=tmp_path, held_out=0.1).fit(tensor(), MASK)
    assert asked.held_out_ == held_out_error(tensor(), fourier(), MASK)


@pytest.mark.parametrize("offset", [0, 300])
def test_noise_alone_is_warned_of(offset):
    name = "the mean alone" if offset else "zeros"
    with pytest.warns(oc.errors.ImputationWarning, match=rf"held out the model has an error of .*, and {name} .*normalized="):
        fitted = ConvolutionalImputer(fourier()).fit(NOISE + np.float32(offset), MASK)
    assert not fitted.held_out_.is_better and name in str(fitted.imputed_.report)


def test_where_means_of_neighbours_do_better_they_are_named():
    places = np.random.default_rng(1).random((N, 2))
    smooth = np.sin(3 * places @ np.random.default_rng(2).standard_normal((2, 144)) + np.arange(144)).reshape(N, 12, 12)
    with pytest.warns(oc.errors.ImputationWarning, match="and means of neighbours"):
        found = ConvolutionalImputer(graph(), n_lambdas=2).fit(smooth, MASK).held_out_
    assert found.neighbours < found.error


@pytest.mark.parametrize("of", [True, False])
def test_of_two_laplacians_that_with_the_smaller_error_is_taken(of):
    true = oc.testing.low_rank_tensor(oc.GraphFourier(graph(), normalized=of), 12, 12, 1)
    fitted = ConvolutionalImputer(graph(), normalized="auto").fit(true, MASK)
    assert fitted.fourier_.normalized is of and relative_error(fitted.tensor_, true, ~MASK) < 0.1
    assert fitted.held_out_.error < fitted.held_out_.other
    assert fitted.held_out_.other == held_out_error(true, oc.GraphFourier(graph(), normalized=not of), MASK).error
    assert "by the other Laplacian" in str(fitted.imputed_.report)


def test_under_noise_lambda_ends_where_the_error_is_smallest():
    true = tensor(seed=3)
    noisy = true + np.float32(0.2) * NOISE
    whole, ended = (ConvolutionalImputer(fourier(), n_lambdas=count).fit(noisy, MASK) for count in (20, "auto"))
    assert len(ended.history_) == whole.held_out_.best == len(ended.held_out_.errors) < len(whole.history_)
    assert ended.held_out_.error == whole.held_out_.least
    assert relative_error(ended.tensor_, true, ~MASK) < 0.8 * relative_error(whole.tensor_, true, ~MASK)
    assert f"n_lambdas={whole.held_out_.best}" in str(whole.imputed_.report)


def test_choices_without_anything_to_choose_by_are_refused():
    for options in ({"normalized": "auto", "held_out": 0}, {"n_lambdas": "auto", "held_out": 0}):
        with pytest.raises(ValueError, match="nothing is to choose by"):
            ConvolutionalImputer(graph(), **options).fit(tensor(), MASK)
    with pytest.raises(ValueError, match="nothing is to choose by"):
        ConvolutionalImputer(graph(), n_lambdas="auto").fit(tensor(), np.ones(N, bool))
    with pytest.raises(ValueError, match="normalized='both': give True, False or 'auto'"):
        ConvolutionalImputer(graph(), normalized="both").fit(tensor(), MASK)
