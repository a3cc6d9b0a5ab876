"""Student's distribution, and Fieller's interval of a ratio: plain numbers in, plain numbers out."""

from __future__ import annotations

from functools import lru_cache

CONFIDENCE = 0.95
"""Of intervals, two-sided, and of bounds, one-sided."""


@lru_cache(maxsize=10_000)
def student(share: float, degrees: float) -> float:
    """The quantile of Student's distribution; the degrees of freedom need not be whole."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def student_share(value: float, degrees: float) -> float:
    """The share of Student's distribution below a value."""
    from scipy.special import stdtr

    return float(stdtr(degrees, value))


def fieller(
    mean: float, full: float, variance: float, full_variance: float, covariance: float, quantile: float
) -> tuple[float, float] | None:
    """Every share t with |mean - t full| <= quantile x its error, where the full mean is above zero.

    None where that has no bounds, because the full mean is not clearly above zero.
    """
    width = quantile**2
    leading = full**2 - width * full_variance
    if full <= 0 or leading <= 0:
        return None
    middle = mean * full - width * covariance
    ratio = mean / full
    of_ratio = max(variance - 2 * ratio * covariance + ratio**2 * full_variance, 0.0)
    # The discriminant written so that runs without any spread leave exactly nothing of it.
    inside = full**2 * of_ratio - width * max(variance * full_variance - covariance**2, 0.0)
    root = (width * max(inside, 0.0)) ** 0.5
    return (middle - root) / leading, (middle + root) / leading
