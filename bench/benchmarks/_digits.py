"""Eight silos of handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fmtc_bench.datasets import label_skew

Array = np.ndarray


@dataclass(frozen=True)
class Silos:
    """Rows with the silo and class of each, divided into training and held-out rows inside every silo."""

    X: Array
    y: Array
    clients: Array
    train: Array  # row numbers
    test: Array


def digits_silos(random_state: int = 0) -> Silos:
    """Eight silos of digits with different sizes and different mixes of the ten digits; a quarter of each held out."""
    X, y = load_digits(return_X_y=True)
    clients = label_skew(y, 8, concentration=10.0, random_state=random_state)
    train, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=random_state, stratify=clients)
    return Silos(X / 16, y, clients, train, test)
