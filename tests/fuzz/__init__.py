"""Hostile files for every reader of the package: ``python -m tests.fuzz --minutes 30 --seed 7``, and less of it in the tests.

A case is a file that is not what it should be: a mutation of a good one, an attack written by hand, or no regular file at all.
What may come of it is a result, or an error that the package raises on purpose; :mod:`tests.fuzz.verdicts` says which those are.
Cases run in a process of their own (:mod:`tests.fuzz.worker`), so that a crash, a hang or memory without end is a finding too.
A new kind of file joins by an entry in :data:`tests.fuzz.corpus.READERS`.
"""
