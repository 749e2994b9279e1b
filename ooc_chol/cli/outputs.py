"""Files that commands write: the word for replacing any, and the kinds that are replaced without it."""

from __future__ import annotations

import ooc_chol.toolbox as tb
from ooc_chol.precision.tile_formats import SVG_MARK

#: The option by which a user asks for files to be replaced.
FORCE = "--force"

REPORT_FORMAT = "ooc-chol factor report"
REPORTS = tb.FileKind("report of ooc-chol factor", f'{{\n "format": "{REPORT_FORMAT}"'.encode(), endings=(".json",))
ISSUE_REPORTS = tb.FileKind("report of ooc-chol report", b"Report of ooc-chol\n", endings=(".txt", ".md"))
PICTURES = tb.FileKind("picture of ooc-chol plan", SVG_MARK.encode(), anywhere=True)
