"""Campaigns as tests: one for each scenario, in which one kind of fault after the other is injected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.faults.campaign import Campaign, Fault
from tests.faults.devices import wrapped_hosts
from tests.faults.injector import Injector
from tests.faults.scenarios import Folder, Scenario
from tests.faults.system import counted_system

#: Makes the faults of a kind for a campaign.
MakeFaults = Callable[[Campaign], list[Fault]]


def check(scenario: Scenario, make_faults: MakeFaults, folder: Path, most: int | None) -> int:
    """Inject so many faults of each sort, or all of them, and see that nothing is wrong; returns how many there were."""
    injector = Injector()
    with wrapped_hosts(injector) as kind, counted_system(injector):
        campaign = Campaign(scenario, Folder(folder), injector, kind)
        results = [campaign.run(fault, most) for fault in make_faults(campaign)]
    wrong = [each for result in results for each in result.wrong]
    assert not wrong, "\n".join([f"{len(wrong)} cases:", *wrong[:20]])
    return sum(result.cases for result in results)
