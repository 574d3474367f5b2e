"""Federated multi-task clustering: personalised clustering for data that may not move."""

import logging

from .artifacts.files import FileError
from .estimator import FMTC, estimate_memory, load
from .kernels.couplings import schatten_p, tsvt
from .metrics import clustering_accuracy, clustering_scores, match_classes, score_clients
from .runtime.driver import ClientError, RoundRecord, run
from .runtime.local import LocalTransport
from .settings import Settings, Solver

logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet unless the program asks

__version__ = "0.1.0"

__all__ = [
    "FMTC",
    "ClientError",
    "FileError",
    "LocalTransport",
    "RoundRecord",
    "Settings",
    "Solver",
    "clustering_accuracy",
    "clustering_scores",
    "estimate_memory",
    "load",
    "match_classes",
    "run",
    "schatten_p",
    "score_clients",
    "tsvt",
]
