"""Pictures: what is drawn is what is true, observed and imputed."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.imputation import save_figure, slices_figure

pytestmark = pytest.mark.host


def arrays():
    true = np.random.default_rng(0).standard_normal((5, 4, 6))
    return true, true + 0.25, np.array([True, False, True, False, True])


def test_slices_are_shown_as_they_are():
    true, imputed, mask = arrays()
    figure = slices_figure(imputed, true, mask, true=true, slices=[1, 2], title="both")
    rows = [figure.axes[at : at + 4] for at in (0, 4)]
    assert [axes.get_title() for axes in rows[0]] == ["true", "observed", "imputed", "imputed - true"]
    for axes, number in zip(rows, (1, 2), strict=True):
        shown = [each.images[0].get_array() for each in axes]
        assert np.allclose(shown[0], true[number]) and np.allclose(shown[2], imputed[number]) and np.allclose(shown[3], 0.25)
        assert np.ma.getmaskarray(shown[1]).all() == (number == 1)
        assert len({each.images[0].get_clim() for each in axes[:3]}) == 1 and axes[0].get_ylabel() == f"slice {number}"
        assert axes[3].images[0].get_clim() == pytest.approx((-0.25, 0.25))
    assert [axes.get_ylabel() for axes in figure.axes[8:]] == ["value", "error"] * 2
    assert [text.get_text() for text in rows[0][1].texts] == ["missing"]


def test_without_the_truth_there_are_two_columns_of_slices_with_gaps():
    true, imputed, mask = arrays()
    figure = slices_figure(np.abs(imputed), np.abs(true), mask)
    assert [axes.get_ylabel() for axes in figure.axes[:4:2]] == ["slice 1", "slice 3"]
    assert figure.axes[1].images[0].get_clim()[0] == 0


def test_what_does_not_fit_is_refused(tmp_path):
    true, imputed, mask = arrays()
    with pytest.raises(ValueError, match="tensors of one shape"):
        slices_figure(imputed, true[:2], mask)
    with pytest.raises(ValueError, match="not among those"):
        slices_figure(imputed, true, mask, slices=[5])
    figure = slices_figure(imputed, true, mask)
    with pytest.raises(ValueError, match="pictures end in"):
        save_figure(figure, tmp_path / "a.doc")
    (tmp_path / "a.png").write_bytes(b"a stranger")
    with pytest.raises(oc.errors.OutputError):
        save_figure(figure, tmp_path / "a.png")
    for _ in range(2):
        save_figure(figure, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
