"""A run of a release's measurements goes on where one was stopped."""

from __future__ import annotations

import json

from benchmarks import release
from benchmarks.running import main


def commands(folder):
    """Commands of the last run."""
    return json.loads((folder / "trial.json").read_text(encoding="utf-8"))["commands"]


def test_a_run_goes_on_where_one_was_stopped(processes: None, waiting: None, monkeypatch, tmp_path, capfd):
    """A command that fails and one for which no time is left are run by the next call, and what ended well is not.

    One whose result file is not of this commit is run again; until then, what is known of one that ran at another stands.
    """
    good = release.Command(f"benchmarks synth --n 30 --theta 1,0.1,0.5 --output {tmp_path / 'field.csv'}", 5)
    bad, late = release.Command("benchmarks synth --n none", 5), release.Command(f"{good.words} --seed 2 --force", 500)
    monkeypatch.setitem(release.COMMANDS, 0, (good, bad, late))
    words = ["release", "--gpus", "0", "--name", "trial", "--output", str(tmp_path), "--minutes", "2"]
    assert main(words) == 1
    first = commands(tmp_path)
    assert {words: each["status"] for words, each in first.items()} == {good.words: 0, bad.words: 2}
    assert "not begun" in capfd.readouterr().out
    monkeypatch.setitem(release.COMMANDS, 0, (good, late._replace(seconds=5)))
    assert main(words) == 0
    again = commands(tmp_path)
    assert again[good.words] == first[good.words] and set(again) == {good.words, late._replace(seconds=5).words}
    monkeypatch.setattr(release, "files_of", lambda words: [tmp_path / "gone.json"] if "--seed" in words else [])
    assert main(words) == 1
    last = commands(tmp_path)
    assert last[good.words] == again[good.words] and last[late.words] != again[late.words]
    monkeypatch.setattr(release, "head", lambda *of: {"commit": "another"})
    monkeypatch.setitem(release.COMMANDS, 0, (late._replace(seconds=500), good._replace(seconds=500)))
    assert main(words) == 1
    assert commands(tmp_path) == last
    monkeypatch.setitem(release.COMMANDS, 0, (late._replace(seconds=5),))
    assert main(words) == 1
    assert list(commands(tmp_path)) == [late.words], "what is no longer among the commands"
