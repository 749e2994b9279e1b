"""Resources of a process: threads, BLAS, address space, locks, signals, its garbage collector, and what a fork leaves of them."""
