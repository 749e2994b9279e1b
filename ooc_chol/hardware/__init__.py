"""Devices: memory that computes, opened with kernels of the caller's choice.

To add a kind, write its :class:`~ooc_chol.interfaces.AbstractDevice` and its
:class:`~ooc_chol.hardware.kinds.AbstractDeviceKind` in a module here, its kernels and their
:class:`~ooc_chol.kernels.kinds.AbstractKernelKind` in ``kernels``, and one line in the register of each folder.
"""
