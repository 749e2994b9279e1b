"""What sides of a bisection may weigh: exact where all vertices weigh the same, as near as vertices allow elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.spectral import shares_of, slack_of, text_of_least

pytestmark = pytest.mark.host


def allowed(weights, n_parts, first, **options):
    """From what to what the first parts may weigh."""
    weights = np.asarray(weights, float)
    target = shares_of(weights, n_parts, options.pop("target_sizes", None), options.pop("balance", 0.0)).target(weights, first)
    return target.weight - target.slack, target.weight + target.slack


def test_halves():
    assert allowed(np.ones(10), 2, 1) == (5, 5) and allowed(np.ones(11), 2, 1) == (5, 6)
    assert allowed(np.full(11, 2.5), 2, 1) == (12.5, 15)
    assert allowed([], 2, 1) == (0, 0)


def test_sides_of_several_parts():
    # 10 vertices into 3: of two parts 6 or 7, of one 3 or 4
    assert allowed(np.ones(10), 3, 1) == (3, 4) and allowed(np.ones(10), 3, 2) == (6, 7)
    assert allowed(np.ones(10), 3, 1, target_sizes=[0.5, 0.3, 0.2]) == (5, 5)


@given(n=st.integers(1, 60), shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=8), data=st.data())
def test_every_choice_of_sizes_leads_to_parts_next_to_their_targets(n, shares, data):
    targets = np.array(shares) / sum(shares)
    if n < len(targets):
        return
    whole = shares_of(np.ones(n), len(targets), targets, 0.0)

    def sizes(part, count):
        if len(part) == 1:
            return [count]
        first = data.draw(st.integers(1, len(part) - 1))
        target = part.target(np.ones(count), first)
        low, high = np.ceil(target.weight - target.slack - 1e-9), np.floor(target.weight + target.slack + 1e-9)
        assert low <= high
        taken = data.draw(st.integers(int(low), int(high)))
        return sizes(part.of(slice(first)), taken) + sizes(part.of(slice(first, None)), count - taken)

    found = np.array(sizes(whole, n))
    assert found.sum() == n and found.min() >= 1
    if min(targets) * n >= 1:
        assert np.abs(found - targets * n).max() < 1 + 1e-6


def test_balance_is_shared_among_levels():
    low, high = allowed(np.ones(1000), 2, 1, balance=0.1)
    assert (low, high) == (pytest.approx(450), pytest.approx(550))
    low, high = allowed(np.ones(1000), 4, 2, balance=0.1)
    assert high == pytest.approx(500 * 1.1**0.5) and low == pytest.approx(1000 - high)


def test_slack_of_weights():
    assert slack_of(np.array([5.0, 1, 1, 1]), 4.0) == 1 and slack_of(np.array([2.0, 2, 4]), 4.0) == 0
    assert slack_of(np.array([3.0, 3, 3]), 4.5) == 1.5
    heavy = np.r_[1e6, np.ones(999_999)]
    assert slack_of(heavy, 1e6) == 0.5  # one vertex is heavy, and nine of ten are light
    uneven = np.random.default_rng(0).uniform(1, 2, 1000)
    assert 0.9 < slack_of(uneven, 700.0) < 1


def test_least_imbalance_in_words():
    assert (
        text_of_least([1, 1, 1], 1.5) is None and text_of_least([2, 1, 1], 2.0) is None and text_of_least([0.5, 0.25], 1) is None
    )
    assert text_of_least([5, 1, 1, 1], 4.0).startswith(
        "No vertices weigh 4 together, half of 8: the least imbalance is a part of "
    )
