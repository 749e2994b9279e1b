"""Frames and options that the calls of all systems share."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.calls import COMMON, Machine, add_words, documented, link_lines, page_text, progress_reporter

pytestmark = pytest.mark.host


def told(function):
    """The names of documented parameters, in order."""
    section = inspect.getdoc(function).split("Parameters\n----------\n")[1].split("\n\nReturns\n-------")[0]
    return [line.split(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]


def test_a_docstring_is_completed_from_the_table_in_the_order_of_the_signature():
    @documented(memory_budget="It holds three blocks.")
    def call(A, k=6, *, devices=None, memory_budget=None, trace=False):
        """Find something.

        Parameters
        ----------
        A : (n, n) array
            A matrix.
        k : int
            How many.

        Returns
        -------
        int
            Nothing.
        """

    assert told(call) == ["A", "k", "devices", "memory_budget", "trace"]
    flat = " ".join(call.__doc__.split())
    assert f"{COMMON['memory_budget'].text} It holds three blocks." in flat
    assert call.__doc__.index("trace : bool") < call.__doc__.index("Returns\n")


def test_a_docstring_takes_entries_of_another_call_and_keeps_its_own():
    def call(A, k=6, *, tol=None):
        """Find something.

        Parameters
        ----------
        A, k : objects
            Two at once.
        tol : float
            A tolerance,

            in two paragraphs.

        Returns
        -------
        int
            Nothing.
        """

    @documented(like=call)
    def plan(A, k=6, *, tol=None):
        """Plan it.

        Returns
        -------
        int
            Nothing.
        """

    assert told(plan)[0] == "A, k" and "in two paragraphs." in plan.__doc__


def test_a_parameter_that_nobody_documents_is_an_error():
    with pytest.raises(KeyError, match="colour"):

        @documented()
        def call(colour):
            """Paint.

            Returns
            -------
            None
            """


def test_words_of_commands_are_made_from_the_table():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_words(parser, ["packed", "replace", "devices", "cluster"], aliases={"packed": ["--store"]})
    given = parser.parse_args(["--store", "a.oocsr", "--force", "--devices", "host:0,host:1", "--cluster", "local:2"])
    assert vars(given) == {"packed": "a.oocsr", "replace": True, "devices": ("host:0", "host:1"), "cluster": "local:2"}
    assert "(default: " not in parser.format_help()


@pytest.mark.parametrize("name", list(COMMON))
def test_each_row_reads_as_a_sentence(name):
    text = COMMON[name].text
    assert (
        text[0].isupper()
        and text.endswith(".")
        and ":class:" not in COMMON[name].help(None)
        and "`" not in COMMON[name].help(None)
    )


def test_a_page_has_its_texts_below_each_other():
    assert (
        page_text([("", "title"), ("a", "one"), ("empty", ""), ("longer", "two")]) == "title\n  a          one\n  longer     two"
    )


def test_many_links_are_one_line_and_few_have_one_each():
    links = {f"memory->cuda:{at}": 10**9 for at in range(3)}
    assert [text for _, text in link_lines(links, links, 2.0)] == ["3 links 3 GB of 3 GB planned, 1.5 GB/s"]
    assert len(list(link_lines(links, links, 2.0, most=3))) == 3


def test_records_that_derive_from_a_frame_have_its_facts_and_their_own():
    @dataclass(frozen=True, repr=False)
    class Plan(tb.AbstractPlan):
        devices: tuple[str, ...]
        call = "count"
        unit = "pass"
        budget_bytes = 100
        peak_bytes = 10
        host_bytes = 0
        seconds = None

        @property
        def bytes(self):
            return {"memory->host:0": 3}

        def lines(self):
            return [("", "Plan"), ("peak", "10 B")]

        def facts(self):
            return {"peak": self.peak_bytes}

        def figures(self):
            return {"own": 1}

    plan = Plan(("host:0",))
    assert str(plan) == "Plan\n  peak       10 B" and repr(plan) == "Plan(peak=10)" and plan._repr_html_() is None
    assert list(plan.to_dict())[-2:] == ["seconds", "own"] and plan.to_dict()["devices"] == ["host:0"]


def test_a_frame_without_its_facts_is_none():
    class Plan(tb.AbstractPlan):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Plan()


@pytest.mark.parametrize("ends", [True, np.True_])
def test_progress_ends_a_call_where_it_returns_true_and_nothing_else(ends):
    for answer in (None, False, np.False_, 1, "yes", np.ones(2)):
        with progress_reporter(lambda *each, answer=answer: answer, "count", "pass") as tell:
            tell(1, 2, 0.0)
    said = pytest.raises(oc.errors.StoppedError, match="count was stopped by its progress function at 1 of 2 passes")
    with progress_reporter(lambda *each: ends, "count", "pass") as tell, said:
        tell(1, 2, 0.0)


def test_a_machine_reads_each_fact_once_and_none_that_nobody_asks_for(monkeypatch):
    from tests.inside.calls import machine

    asked = []
    for name in ("default_budget", "free_host_bytes", "machine_identity", "usable_rates"):
        place = machine.identity if name == "machine_identity" else machine
        monkeypatch.setattr(place, name, lambda *given, name=name: asked.append(name) or 7)
    here = Machine("host:0")
    assert asked == []
    assert here.names == ("host:0",) and here.budget_bytes == here.budget_bytes == 7
    assert (here.free_host_bytes, here.identity, here.rates) == (7, 7, 7) == (here.free_host_bytes, here.identity, here.rates)
    assert asked == ["default_budget", "free_host_bytes", "machine_identity", "usable_rates"]
    assert Machine("host:0", "1 kB").budget_bytes == 1000
