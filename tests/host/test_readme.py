"""The README's Python blocks run as they stand, one after the other in one folder, as a reader would try them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

README = Path(__file__).resolve().parents[2] / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert any("covariance.npy" in block for block in blocks)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
        np.save("covariance.npy", names["A"])  # the reader's own file: the matrix of the first block
    assert capsys.readouterr().out.count("Cholesky of n = 1500") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"covariance.npy", "covariance.factor", "run.pftrace"}
