"""CCA written as naively as the formulas: what solvers are compared with."""

import numpy as np


def inverse_root(S):
    values, vectors = np.linalg.eigh(S)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def linear_cca(X, Y, L, rx=0.0, ry=0.0):
    """Weights and singular values for absolute regularisers, by the paper's equation (1)."""
    X, Y = X - X.mean(0), Y - Y.mean(0)
    n = len(X)
    Sxx = X.T @ X / n + rx * np.eye(X.shape[1])
    Syy = Y.T @ Y / n + ry * np.eye(Y.shape[1])
    T = inverse_root(Sxx) @ (X.T @ Y / n) @ inverse_root(Syy)
    U, s, Vt = np.linalg.svd(T)
    return inverse_root(Sxx) @ U[:, :L], inverse_root(Syy) @ Vt[:L].T, s[:L]


def kernel_cca(Kx, Ky, L, rx, ry):
    """Correlations from the paper's N x N eigenproblem, as it is written."""
    n = len(Kx)
    H = np.eye(n) - 1 / n
    Kx, Ky = H @ Kx @ H, H @ Ky @ H
    one = np.eye(n)
    P = np.linalg.solve(Kx + n * rx * one, Ky) @ np.linalg.solve(Ky + n * ry * one, Kx)
    values = np.sort(np.linalg.eigvals(P).real)[::-1]
    return np.sqrt(np.clip(values[:L], 0, None))
