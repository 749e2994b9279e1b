"""What a process has: threads, BLAS, address space, locks, signals, its garbage collector, and what a fork leaves of them."""
