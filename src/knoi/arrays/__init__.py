"""Arrays: NumPy or torch behind one interface, sparse rows, linear algebra, random draws."""
