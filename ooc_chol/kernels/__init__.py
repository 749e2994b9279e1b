"""The kernels of each kind of device: POTRF, TRSM, SYRK, GEMM, residues and solves behind one interface.

``interfaces`` says what they do, ``host`` and ``cuda`` do it, ``kinds`` says what planning must know of them, and ``registry``
chooses them by the name of a device.
"""
