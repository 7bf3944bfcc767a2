"""How well predictions fit: accuracy, correlations, and the line through a scatter plot (F1 is parsing's)."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata


def accuracy(wanted: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(wanted == predicted)) if len(wanted) else float("nan")


def majority_share(train: np.ndarray, test: np.ndarray) -> float:
    """Accuracy on `test` of always answering the commonest label of `train`."""
    labels, counts = np.unique(train, return_counts=True)
    return accuracy(test, np.full(len(test), labels[counts.argmax()]))


def pearson(wanted: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation; NaN where one side does not vary."""
    x, y = (np.asarray(v, np.float64) - np.mean(v, dtype=np.float64) for v in (wanted, predicted))
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else float("nan")


def spearman(wanted: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks, ties at their mean rank."""
    return pearson(rankdata(wanted), rankdata(predicted))


def best_line(wanted: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """(slope, intercept) of the least-squares line predicted = slope * wanted + intercept."""
    slope, intercept = np.polyfit(np.asarray(wanted, np.float64), np.asarray(predicted, np.float64), 1)
    return float(slope), float(intercept)
