"""KNOI written as naively as Algorithm 1 of the paper, on feature matrices given whole.

What the paper leaves open is fixed as the library fixes it: features are not scaled, means are
smoothed like covariances, both start from the first minibatch, scores are centred on both sides of
the residual, and weight decay adds to the gradient.
"""

import numpy as np

from tests.oracles.cca import inverse_root


def knoi(batches, U, V, *, eta, mu, rho, decay=0.0):
    """U and V after a step on each minibatch (Phi, Psi), (b, Mx) and (b, My)."""
    U, V = np.array(U, dtype=np.float64), np.array(V, dtype=np.float64)
    dU, dV = np.zeros_like(U), np.zeros_like(V)
    mean_x = mean_y = Sxx = Syy = None
    for Phi, Psi in batches:
        b = len(Phi)
        P, Q = Phi @ U, Psi @ V
        if mean_x is None:
            mean_x, mean_y = P.mean(0), Q.mean(0)
        else:
            mean_x = rho * mean_x + (1 - rho) * P.mean(0)
            mean_y = rho * mean_y + (1 - rho) * Q.mean(0)
        P, Q = P - mean_x, Q - mean_y
        if Sxx is None:
            Sxx, Syy = P.T @ P / b, Q.T @ Q / b
        else:
            Sxx = rho * Sxx + (1 - rho) * P.T @ P / b
            Syy = rho * Syy + (1 - rho) * Q.T @ Q / b
        gU = Phi.T @ (P - Q @ inverse_root(Syy)) / b
        gV = Psi.T @ (Q - P @ inverse_root(Sxx)) / b
        dU = mu * dU - eta * (gU + decay * U)
        dV = mu * dV - eta * (gV + decay * V)
        U, V = U + dU, V + dV
    return U, V
