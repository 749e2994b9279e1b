"""Kinds of faults: which calls of a scenario fail, as what, and what a user must be told."""

from __future__ import annotations

from functools import partial

import ooc_chol as oc
from tests.faults.campaign import Campaign, Fault, interrupt
from tests.faults.devices import DriverError
from tests.faults.system import ERRORS, SPARE, system_error

#: Calls of files that may fail without anybody's harm: what is looked at, or cleared away, is so for a better message.
_HARMLESS = ("remove", "look", "mode", SPARE)


def refused(campaign: Campaign) -> list[Fault]:
    """The driver refuses a call of a device."""
    return [Fault("device:", partial(DriverError, "refused"), error=oc.errors.DeviceError, says="host:")]


def failed(campaign: Campaign) -> list[Fault]:
    """A copy or a kernel fails on its stream, after it was enqueued."""
    # What comes behind a pivot that failed is dropped with all that was enqueued there, whatever became of it.
    may_pass = campaign.scenario.name.startswith("escalating")
    make = partial(DriverError, "an illegal address")
    return [Fault("stream:", make, error=oc.errors.DeviceError, says="host:", may_pass=may_pass)]


def lost(campaign: Campaign) -> list[Fault]:
    """A device is lost at a call: it refuses every one from then on."""
    return [Fault("device:", partial(DriverError, "the device is lost"), goes_on=True, error=oc.errors.DeviceError, says="host:")]


def unlocked(campaign: Campaign) -> list[Fault]:
    """Page-locking fails: whoever needs the memory is told, unless all was copied by then."""
    return [Fault("lock:", partial(DriverError, "no page is locked"), error=oc.OocCholError, may_pass=True)]


def files(campaign: Campaign, first: bool = True) -> list[Fault]:
    """The system fails a call of a file, by the error that is the likeliest or by all others."""
    found = []
    for kind, codes in ERRORS.items():
        for code in codes[:1] if first else codes[1:]:
            make = partial(system_error, code)
            found.append(Fault(f"file:{kind}", make, error=oc.errors.TierError, says="{folder}", may_pass=kind in _HARMLESS))
    return found


def other_errors(campaign: Campaign) -> list[Fault]:
    """As :func:`files`, by the less likely errors."""
    return files(campaign, first=False)


def full(campaign: Campaign) -> list[Fault]:
    """The disk is full from one write on, and stays so."""
    make = partial(system_error, ERRORS["write"][0])
    return [Fault("file:write", make, goes_on=True, error=oc.errors.TierError, says="{folder}")]


def short(campaign: Campaign) -> list[Fault]:
    """A read or a write moves the first half of what it was asked to: the rest follows, and nobody is told."""
    return [Fault("short:", RuntimeError, error=(), may_pass=True)]


def memory(campaign: Campaign) -> list[Fault]:
    """Memory is refused: by an error of ours, or of NumPy's where somebody asked for an array; or it was only kept for later."""
    return [Fault("memory:", partial(MemoryError, "refused"), error=(oc.OocCholError, MemoryError), may_pass=True)]


def threads(campaign: Campaign) -> list[Fault]:
    """The system starts no more threads."""
    make = partial(RuntimeError, "can't start new thread")
    return [
        Fault("thread:", make, error=oc.BudgetError, says="thread", may_pass=True),
        Fault("thread:", make, goes_on=True, error=oc.BudgetError, says="thread", may_pass=True),
    ]


def interrupts(campaign: Campaign) -> list[Fault]:
    """Ctrl-C at a call of any kind; one that comes when all is done is met in what follows."""
    groups = [kind for kind in campaign.counts if kind.endswith(":") and kind not in ("stream:", "short:")]
    return [Fault(kind, interrupt, error=KeyboardInterrupt, may_pass=True) for kind in groups]
