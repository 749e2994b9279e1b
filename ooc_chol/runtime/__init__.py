"""The runtime: workers that enqueue a plan's steps on streams, and the table by which devices wait on each other."""
