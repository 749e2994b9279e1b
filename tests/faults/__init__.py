"""Faults that tests inject into real devices, tiers and system calls, and what must hold after each.

:mod:`~tests.faults.injector` counts calls and says which one fails; :mod:`~tests.faults.devices` and
:mod:`~tests.faults.system` are the places that ask it; :mod:`~tests.faults.scenarios` is the table of what is run, and
:mod:`~tests.faults.campaign` runs it once for every call that can fail. A new engine, store or pass joins by one entry in the
table of scenarios, a new kind of call by one place that asks.
"""
