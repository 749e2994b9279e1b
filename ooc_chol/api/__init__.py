"""Front doors: the public calls, each with its docstring, its options, and which way it goes."""
