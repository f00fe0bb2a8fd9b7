"""Naive kernels: one pair of rows at a time, one formula per function, slow."""

import math

import numpy as np


def gram(pair, X, Z):
    """`pair(x, z)` for every two rows, in float64."""
    X, Z = np.asarray(X, dtype=np.float64), np.asarray(Z, dtype=np.float64)
    return np.array([[pair(x, z) for z in Z] for x in X])


def entries(x, z):
    return zip(x, z, strict=True)


def rbf(width):
    return lambda x, z: math.exp(-sum((a - b) ** 2 for a, b in entries(x, z)) / (2 * width**2))


def laplacian(width):
    return lambda x, z: math.exp(-sum(abs(a - b) for a, b in entries(x, z)) / width)


def cauchy(width):
    return lambda x, z: math.prod(1 / (1 + (a - b) ** 2 / width**2) for a, b in entries(x, z))


def matern_at(nu, r):
    """Matern as a mixture of Gaussians, E exp(-nu r^2 / (2 g)) over g ~ Gamma(nu): no Bessel.

    With g = e^u the integrand is smooth and vanishes at both ends, so a plain sum is accurate.
    """
    if r == 0:
        return 1.0
    u, step = np.linspace(-60.0, 12.0, 40_001, retstep=True)
    logarithm = nu * u - np.exp(u) - math.lgamma(nu) - 0.5 * nu * r * r * np.exp(-u)
    return float(np.sum(np.exp(logarithm)) * step)


def matern(width, nu):
    def pair(x, z):
        r = math.sqrt(sum((a - b) ** 2 for a, b in entries(x, z))) / width
        if nu == 0.5:
            return math.exp(-r)
        if nu == 1.5:
            return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
        if nu == 2.5:
            return (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)
        return matern_at(nu, r)

    return pair


def linear():
    return lambda x, z: sum(a * b for a, b in entries(x, z))


def polynomial(width, degree, coef0):
    return lambda x, z: (sum(a * b for a, b in entries(x, z)) / width**2 + coef0) ** degree


def spherical_polynomial(degree, coef0):
    def pair(x, z):
        lengths = math.sqrt(sum(a * a for a in x)), math.sqrt(sum(b * b for b in z))
        if 0 in lengths:  # rows of zeros share an extra direction
            return (float(lengths == (0, 0)) + coef0) ** degree
        cosine = sum((a / lengths[0]) * (b / lengths[1]) for a, b in entries(x, z))
        return (cosine + coef0) ** degree

    return pair


def arccosine(order):
    def pair(x, z):
        lengths = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in z))
        dot = sum(a * b for a, b in entries(x, z))
        theta = math.acos(max(-1.0, min(1.0, dot / lengths))) if lengths > 0 else math.pi / 2
        sine, cosine = math.sin(theta), math.cos(theta)
        angular = (
            math.pi - theta,
            sine + (math.pi - theta) * cosine,
            3 * sine * cosine + (math.pi - theta) * (1 + 2 * cosine**2),
        )[order]
        return lengths**order * angular / math.pi

    return pair


def chi2(width):
    return lambda x, z: math.exp(
        -sum((a - b) ** 2 / (a + b) for a, b in entries(x, z) if a + b > 0) / width
    )


def additive_chi2():
    return lambda x, z: sum(2 * a * b / (a + b) for a, b in entries(x, z) if a + b > 0)


def intersection():
    return lambda x, z: sum(min(a, b) for a, b in entries(x, z))
