"""How well predictions fit: accuracy, correlations, and the line through a scatter plot (F1 is parsing's)."""

from __future__ import annotations

import numpy as np
from scipy.stats import linregress, rankdata
from sklearn.metrics import accuracy_score


def accuracy(wanted: np.ndarray, predicted: np.ndarray) -> float:
    """Share of equal labels; NaN of none."""
    return float(accuracy_score(wanted, predicted)) if len(wanted) else float("nan")


def majority_share(train: np.ndarray, test: np.ndarray) -> float:
    """Accuracy on `test` of always answering the commonest label of `train`."""
    labels, counts = np.unique(train, return_counts=True)
    return accuracy(test, np.full(len(test), labels[counts.argmax()]))


def pearson(wanted: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation; NaN where one side does not vary.

    scipy's pearsonr divides each side by its norm first: equal but for the last digits, and recorded numbers have them.
    """
    x, y = (np.asarray(v, np.float64) - np.mean(v, dtype=np.float64) for v in (wanted, predicted))
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else float("nan")


def spearman(wanted: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks, ties at their mean rank."""
    return pearson(rankdata(wanted), rankdata(predicted))


def best_line(wanted: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """(slope, intercept) of the least-squares line predicted = slope * wanted + intercept."""
    line = linregress(np.asarray(wanted, np.float64), np.asarray(predicted, np.float64))
    return float(line.slope), float(line.intercept)
