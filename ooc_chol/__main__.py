"""``python -m ooc_chol`` is ``ooc-chol``."""

import sys

from ooc_chol_command import main

if __name__ == "__main__":
    sys.exit(main())
