"""Everything about a factorization that is known before it starts; pure, without matrix data and without devices."""
