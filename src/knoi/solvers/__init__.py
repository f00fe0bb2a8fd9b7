"""Solvers of CCA: closed forms from moments, and the stochastic updates and their loop."""
