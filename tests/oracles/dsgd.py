"""DSGD for kernel CCA as naively as its formulas, on feature matrices given whole.

What the paper leaves open is fixed as the library fixes it: features are centred by minibatch, the
multipliers are symmetric, blocks take turns, the step falls as eta / (1 + t / t0).
"""

import numpy as np


def dsgd(batches, U, V, *, eta, t0, n_blocks=1, rx=0.0, ry=0.0):
    """U and V after a step on each minibatch (Phi, Psi), (b, Mx) and (b, My)."""
    U, V = np.array(U, dtype=np.float64), np.array(V, dtype=np.float64)
    for t, (Phi, Psi) in enumerate(batches):
        b = len(Phi)
        Phi, Psi = Phi - Phi.mean(0), Psi - Psi.mean(0)
        Sxx, Syy, Sxy = Phi.T @ Phi / b, Psi.T @ Psi / b, Phi.T @ Psi / b
        C = U.T @ Sxy @ V + V.T @ Sxy.T @ U
        gU = Sxy @ V - (Sxx + rx * np.eye(len(U))) @ U @ C
        gV = Sxy.T @ U - (Syy + ry * np.eye(len(V))) @ V @ C
        step = eta / (1 + t / t0)
        x = np.array_split(np.arange(len(U)), n_blocks)[t % n_blocks]
        y = np.array_split(np.arange(len(V)), n_blocks)[t % n_blocks]
        U[x] += step * gU[x]
        V[y] += step * gV[y]
    return U, V
