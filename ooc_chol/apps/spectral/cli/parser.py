"""The parser of one command, whose options come from a module of its own when the command is named."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import ooc_chol.toolbox as tb


class CommandParser(tb.SuggestingParser):
    """Takes options and action from the command's module when it first reads words, so that others are not imported."""

    def __init__(self, *args: Any, module: str, **kwargs: Any) -> None:
        self._module: str | None = module
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as ``argparse`` does, after the options are there."""
        self.complete()
        return super().parse_known_args(args, namespace)

    def complete(self) -> None:
        """Add the options of the command, unless they are there."""
        module, self._module = self._module, None
        if module is None:
            return
        with tb.guarded_imports():
            command = importlib.import_module(module)
        command.add_options(self)
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in command.EXAMPLES)])
        self.add_argument("--json", action="store_true", help="print one JSON object; the rest goes to standard error")
        self.add_argument("--quiet", action="store_true", help="print nothing but that, and warnings and errors; no progress")
        self.set_defaults(run=command.run)
