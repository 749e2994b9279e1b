"""Devices are named alike in Python and on the command line: words, names with commas between, counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.cli import main
from tests.inside.hardware import resolve_devices

WAYS = {
    "host": ("host:0",),
    "cpu": ("host:0",),
    "host:0": ("host:0",),
    "host:0,host:1": ("host:0", "host:1"),
    "host:1, host:0": ("host:1", "host:0"),
    "2": ("host:0", "host:1"),
}


@pytest.mark.parametrize(("text", "names"), WAYS.items())
def test_a_text_means_the_same_in_python_and_on_the_command_line(text, names, capsys):
    a = np.eye(40) + 0.5
    with oc.cholesky(a, devices=text, tile_size=16, memory_budget="1 MiB") as factor:
        assert factor.report.plan.devices == names
    words = ["plan", "--n", "40", "--tile-size", "16", "--memory-budget", "1 MiB", "--json"]
    assert main([*words, "--devices", text]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == list(names)
    assert oc.plan(40, tile_size=16, memory_budget="1 MiB", devices=text).devices == names


def test_words_may_stand_among_names():
    assert resolve_devices(["cpu", "host:3"]) == ("host:0", "host:3")
    with pytest.raises(ValueError, match="none twice"):
        resolve_devices("cpu,host")
    with pytest.raises(ValueError, match="all of one kind"):
        resolve_devices("cpu,cuda", must_exist=False)


@pytest.mark.parametrize("word", ["cuda", "gpu"])
def test_without_a_gpu_its_words_plan_for_one_and_are_refused_by_a_run(word):
    assert resolve_devices(word, must_exist=False) == ("cuda:0",)
    assert oc.plan(4096, devices=word, memory_budget="1 GiB").devices == ("cuda:0",)
    with pytest.raises(ValueError, match=rf"there is no device '{word}' \(.*\); there are host:0 to host:15"):
        oc.cholesky(np.eye(3), devices=word, memory_budget="1 GiB")


@pytest.mark.parametrize("text", ["", ",", "0", "tpu", "host:99", "hosts"])
def test_texts_without_sense_are_refused_alike(text, capsys):
    with pytest.raises(ValueError, match=r"devices is|there is no device") as caught:
        oc.cholesky(np.eye(3), devices=text)
    assert main(["plan", "--n", "3", "--devices", text]) == 2
    assert str(caught.value) in capsys.readouterr().err
