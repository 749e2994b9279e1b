"""The case that says which results are older than a change of the code that they measure, on a repository of its own."""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmarks import release, stale
from benchmarks.running import RESULTS, ROOT, main
from tests.inside.bench import RESULT_FILES

pytestmark = pytest.mark.host


class Repository:
    """A repository of a few files."""

    def __init__(self, root):
        self.root = root
        self.git("init", "--quiet")

    def git(self, *words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject, **files):
        """Write files, whose names have two underscores for a slash, and commit them; the commit."""
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_json", ".json").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, processes):
    made = Repository(tmp_path)
    made.commit("diff: begin", ooc_chol__diff__a_py="1", ooc_chol__kernels__cuda__a_py="1", ooc_chol__tensors__a_py="1")
    return made


def told(repository):
    """Each result's own commit or the one that brought it, and the subjects of what changed since."""
    found = stale.ages(repository.root, repository.root / "results")
    return {each.path.as_posix(): (each.is_own, [change.subject for change in each.changes]) for each in found}


def test_changes_of_the_rooms_behind_the_commit_of_a_result_are_told(repository):
    first = repository.git("rev-parse", "HEAD")
    repository.commit("results: a", results__diff__a_json=json.dumps({"commit": first}))
    assert told(repository) == {"diff/a.json": (True, [])}
    repository.commit("impute: elsewhere", ooc_chol__tensors__a_py="2")
    repository.commit("docs: a docstring", ooc_chol__diff__a_py="# 1")
    assert told(repository) == {"diff/a.json": (True, [])}
    repository.commit("diff: faster", ooc_chol__diff__a_py="2")
    repository.commit("diff: faster still", ooc_chol__diff__a_py="3")
    assert told(repository) == {"diff/a.json": (True, ["diff: faster still", "diff: faster"])}


@pytest.mark.parametrize("content", [{}, {"commit": "unknown"}, {"commit": "0" * 40}, {"commit": None}, []])
def test_a_result_without_a_commit_of_the_repository_is_as_old_as_its_file(repository, content):
    repository.commit("results: a", results__diff__a_json=json.dumps(content))
    assert told(repository) == {"diff/a.json": (False, [])}
    repository.commit("diff: faster", ooc_chol__diff__a_py="2")
    assert told(repository) == {"diff/a.json": (False, ["diff: faster"])}


def test_a_result_of_the_host_does_not_measure_the_code_of_cuda(repository):
    own = json.dumps({"commit": repository.git("rev-parse", "HEAD")})
    repository.commit("results: two", results__tensors__h200_json=own, results__tensors__host_json=own)
    repository.commit("kernels: faster", ooc_chol__kernels__cuda__a_py="2")
    assert told(repository) == {"tensors/h200.json": (True, ["kernels: faster"]), "tensors/host.json": (True, [])}


def test_a_file_that_was_never_committed_is_said(repository, monkeypatch, capsys):
    repository.commit("results: a", results__diff__a_json="{}")
    (repository.root / "results/diff/b.jsonl").write_text('{"case": "b"}\n{"n": 1}\n', encoding="utf-8")
    found = list(stale.ages(repository.root, repository.root / "results"))
    monkeypatch.setattr(stale, "ages", lambda: found)
    assert main(["stale"]) == 0
    printed = capsys.readouterr().out
    assert "     ?  diff/b.jsonl  is in no commit\n" in printed and "a.json" not in printed
    assert printed.endswith("1 of 2 results are older than 1 or more changes of the code that they measure\n")


def test_the_list_begins_with_what_has_most_changes(repository, monkeypatch, capsys):
    first = repository.git("rev-parse", "HEAD")
    repository.commit("results: a", results__diff__old_json=json.dumps({"commit": first}))
    second = repository.commit("diff: faster", ooc_chol__diff__a_py="2")
    repository.commit("results: b", results__diff__a_json=json.dumps({"commit": second}))
    repository.commit("diff: faster still", ooc_chol__diff__a_py="3")
    found = list(stale.ages(repository.root, repository.root / "results"))
    monkeypatch.setattr(stale, "ages", lambda: found)
    assert main(["stale"]) == 0
    old, new, last = capsys.readouterr().out.splitlines()
    assert old.startswith(f"     2  diff/old.json  since {first[:8]}; the newest 20") and old.endswith(": diff: faster still")
    assert new.startswith(f"     1  diff/a.json  since {second[:8]}; the newest 20")
    assert last.startswith("2 of 2 results")
    assert main(["stale", "--least", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == old


def test_each_folder_of_results_has_rooms_that_are_there():
    folders = {path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*.json*")}
    assert folders - {release.FOLDER} == set(stale.ROOMS)  # a release says what ran, and has no figures
    assert not [room for rooms in stale.ROOMS.values() for room in rooms if not (ROOT / "ooc_chol" / room).is_dir()]


def test_each_result_begins_with_its_case():
    """A file without it is taken for a stranger's, which no run replaces, whatever it has measured."""
    assert [path.name for path in RESULTS.rglob("*.json") if RESULT_FILES.doubt(path)] == []
