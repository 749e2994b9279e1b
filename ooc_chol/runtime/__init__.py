"""What holds around every run on devices, whatever it computes: the garbage collector rests, and no thread or memory stays."""
