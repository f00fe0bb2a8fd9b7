"""WHERE NUMBERS LIVE: one code path over NumPy and torch arrays."""
