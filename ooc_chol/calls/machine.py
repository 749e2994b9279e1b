"""The machine as one call sees it: names of devices, budgets, free memory, identity and rates, each read once and handed down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import final

from ooc_chol.config import parse_bytes
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.kinds import AbstractDeviceKind
from ooc_chol.hardware.rates_file import Everything, usable_rates
from ooc_chol.hardware.registry import default_budget, device_kind, resolve_devices
from ooc_chol.kernels.identity import machine_identity


@final
class Machine:
    """Devices of a call, and what is known of them; a fact that nobody asks for is not read."""

    def __init__(
        self,
        devices: str | Sequence[str] | int | None,
        memory_budget: int | str | None = None,
        *,
        must_exist: bool = True,
    ) -> None:
        self.names = resolve_devices(devices, must_exist=must_exist)
        self.has_default_devices = devices is None
        self._budget = None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")

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
    def free_host_bytes(self) -> int:
        """Bytes of host memory that this process can take."""
        return free_host_bytes()

    @cached_property
    def identity(self) -> str:
        """Identity that measured rates belong to."""
        return machine_identity(self.names)

    @cached_property
    def rates(self) -> Everything:
        """All measured rates of this user's machines."""
        return usable_rates()
