"""Exception that Ctrl-C raises in an imputation: the result so far is handed back."""

from __future__ import annotations

from typing import Any


class ImputationInterrupted(KeyboardInterrupt):
    """Ctrl-C ended :func:`ooc_chol.impute`, which had come as far as ``imputed``.

    Parameters
    ----------
    imputed : Imputed
        The tensor after the last complete step, with the history of all values of lambda that were completed.
    """

    def __init__(self, imputed: Any) -> None:
        self.imputed = imputed
        super().__init__("impute was interrupted; the error's attribute imputed has the tensor after the last step")
