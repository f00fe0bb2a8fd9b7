"""HOW U AND V ARE FOUND: additive moments and closed forms."""
