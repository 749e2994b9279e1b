"""Plans on devices: one thread enqueues the steps of all of them."""
