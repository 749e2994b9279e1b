"""One function of a case in a process of its own; what it gives is the last line on standard output."""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    module, name = sys.argv[1].split(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))))
