"""The machine as one call sees it: names of devices, budgets, free memory, identity and rates, each read once and handed down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import final

from ooc_chol.config import parse_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.kinds import AbstractDeviceKind
from ooc_chol.hardware.rates_file import Everything, Figures, usable_rates
from ooc_chol.hardware.registry import default_budget, device_kind, is_here, resolve_devices
from ooc_chol.kernels import identity


@final
class Machine:
    """Devices of a call, and what is known of them; a fact that nobody asks for is not read.

    Parameters
    ----------
    devices : str, sequence of str, int or None
        The option of the call.
    memory_budget : int, str or None
        The option of the call.
    must_exist : bool
        Refuse devices that are not on this machine; plans take them.
    """

    def __init__(
        self, devices: str | Sequence[str] | int | None, memory_budget: int | str | None = None, *, must_exist: bool = True
    ) -> None:
        self._devices, self._must_exist = devices, must_exist
        self.has_default_devices = devices is None
        self._budget = None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")

    def on_host(self) -> Machine:
        """The host of the same call, with its memory budget; no GPU is looked for."""
        return Machine("host:0", self._budget)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the devices; ``ValueError`` or ``TypeError`` where there are none such."""
        return resolve_devices(self._devices, must_exist=self._must_exist)

    @cached_property
    def kind(self) -> AbstractDeviceKind:
        """Kind of the devices."""
        return device_kind(self.names[0])

    @property
    def has_default_budget(self) -> bool:
        """True where the caller has left the budget to what is free."""
        return self._budget is None

    @cached_property
    def budget_bytes(self) -> int:
        """Bytes of memory for each device: as many as the caller says, else by what is free."""
        return default_budget(self.names) if self._budget is None else self._budget

    @cached_property
    def steady_budget_bytes(self) -> int:
        """As :attr:`budget_bytes`, where nobody says how many less at most a 64th.

        What is free changes from call to call by a little: rounded down it seldom does, and a plan that was made can be taken
        again.
        """
        return rounded_down(self.budget_bytes) if self._budget is None else self._budget

    @cached_property
    def free_host_bytes(self) -> int:
        """Bytes of host memory that this process can take."""
        return free_host_bytes()

    @cached_property
    def identity(self) -> str:
        """Identity that measured rates belong to."""
        return identity.machine_identity(self.names)

    def __repr__(self) -> str:
        return one_line(self, {"devices": self.names})

    @cached_property
    def rates(self) -> Everything:
        """All measured rates of this user's machines."""
        return usable_rates()

    @cached_property
    def measured(self) -> tuple[dict[str, Figures], ...]:
        """Rates by tile order, of all devices together, then of the first alone; none where one of them is elsewhere."""
        if not all(map(is_here, self.names)):
            return ()
        of_all = self.rates.get(self.identity, {})
        return (of_all, self.rates.get(identity.machine_identity(self.names[:1]), {})) if len(self.names) > 1 else (of_all,)


def rounded_down(free: int) -> int:
    """Bytes that are free, less at most a 64th."""
    return free // (step := 1 << max(0, free.bit_length() - 7)) * step
