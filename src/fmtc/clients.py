"""Rows of several clients in one array or in a mapping: checked, divided by client, and answered in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted, validate_data

from .errors import DataError

Array = np.ndarray
NAMELESS = {"nan", "None", "<NA>", "NaT", ""}
SINGLE = "all"  # name of the only client if `clients` is omitted


class ClientsMixin:
    """What an estimator with one model per client needs for `fit(X, clients=)` and `predict(X, clients=)`.

    A fitted estimator has `client_ids_`, sorted, and `_models`, one for each.
    """

    client_ids_: list[str]
    _models: Mapping[str, Any]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_models")

    def _model_of(self, client: Any) -> Any:
        try:
            return self._models[str(client)]
        except KeyError:
            known = ", ".join(map(repr, self.client_ids_))
            raise DataError(f"unknown client {str(client)!r}; this model has {known}") from None

    def _each(self, X: Any, clients: Any, answer: Callable[[Any, Any], Array], **checks: Any) -> Any:
        """Answer for every row with its client's model, in the order of the rows."""
        check_is_fitted(self)
        parts = self._parts(X, clients, reset=False, **checks)
        if len(parts) == 1 and not is_mapping(X):
            ((cid, (Xt, _)),) = parts.items()
            return answer(Xt, self._models[cid])
        found = {cid: answer(Xt, self._models[cid]) for cid, (Xt, _) in parts.items()}
        first = next(iter(found.values()))
        answers = np.empty((sum(map(len, found.values())), *first.shape[1:]), np.result_type(*found.values()))
        for cid, (_, rows) in parts.items():
            answers[rows] = found[cid]
        return self._as_given(X, answers)

    def _as_given(self, X: Any, answers: Array) -> Any:
        """One array for an array; for a mapping of clients, a mapping with the same keys."""
        if not is_mapping(X):
            return answers
        ends = np.cumsum([_n_rows(Xt) for Xt in X.values()])
        return dict(zip(X, np.split(answers, ends[:-1]), strict=True))

    def _parts(self, X: Any, clients: Any, *, reset: bool, **checks: Any) -> dict[str, tuple[Any, Any]]:
        """Checked rows of each client and their positions in the input; new clients are accepted only when fitting."""
        checks |= {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        if is_mapping(X):
            return self._parts_of_mapping(X, clients, checks, reset)
        X = self._checked(X, reset=reset, ensure_min_samples=2 if reset else 1, **checks)
        n = X.shape[0]
        if clients is None:
            if not reset and len(self.client_ids_) > 1:
                known = ", ".join(map(repr, self.client_ids_))
                raise DataError(f"the client of these rows is not given: pass clients=; this model has {known}")
            return {SINGLE if reset else self.client_ids_[0]: (X, slice(None))}
        parts: dict[str, tuple[Any, Any]]
        if isinstance(clients, str):
            if clients in NAMELESS:
                raise DataError(f"the client has no name: {clients!r}")
            names = [clients]
            parts = {clients: (X, slice(None))}
        else:
            names, index = _client_index(clients, n)
            if len(names) == 1:
                parts = {names[0]: (X, slice(None))}
            else:
                parts = {name: (X[rows], rows) for name, rows in zip(names, index, strict=True)}
        if not reset:
            for name in names:
                self._model_of(name)
        return parts

    def _parts_of_mapping(
        self, X: Mapping[Any, Any], clients: Any, checks: dict[str, Any], reset: bool
    ) -> dict[str, tuple[Any, Any]]:
        if clients is not None:
            raise TypeError("X is already a mapping of clients; omit clients=")
        if not X:
            raise DataError("X is an empty mapping; give at least one client")
        parts: dict[str, tuple[Any, Any]] = {}
        begin = 0
        for key, rows in X.items():
            name = str(key)
            if name in NAMELESS:
                raise DataError(f"a client has no name: {key!r}")
            if name in parts:
                raise DataError(f"two clients are called {name!r}; names must differ as text")
            if not reset:
                self._model_of(name)
            Xt = self._checked(rows, f"client {name!r}: ", reset=reset and not parts, **checks)
            parts[name] = (Xt, slice(begin, begin + Xt.shape[0]))
            begin += Xt.shape[0]
        dtypes = {Xt.dtype for Xt, _ in parts.values()}
        if len(dtypes) > 1:  # one client in double precision: all compute in double precision
            parts = {name: (Xt.astype(np.float64, copy=False), rows) for name, (Xt, rows) in parts.items()}
        return parts

    def _checked(self, X: Any, prefix: str = "", **checks: Any) -> Any:
        """scikit-learn's check of rows; what it finds wrong with the values is an error in the data."""
        try:
            return validate_data(self, X, **checks)
        except ValueError as error:
            raise DataError(f"{prefix}{error}") from error
        except TypeError as error:
            raise TypeError(f"{prefix}{error}") from error


def is_mapping(X: Any) -> bool:
    """Whether X is a mapping of clients to rows."""
    return isinstance(X, Mapping) and not sp.issparse(X)  # a dok_array is also a dict


def _n_rows(X: Any) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _client_index(clients: Any, n: int) -> tuple[list[str], list[Array]]:
    """Names of the clients and the rows of each, from one name per row."""
    array = np.asarray(clients)
    if array.ndim != 1 or len(array) != n:
        raise DataError(f"clients must hold one name per row: X has {n} rows, clients has shape {array.shape}")
    values, codes = np.unique(array.astype(str), return_inverse=True)
    missing = NAMELESS & set(values.tolist())
    if missing:
        raise DataError(f"clients has {int(np.isin(array.astype(str), list(missing)).sum())} rows without a name")
    order = np.argsort(codes, kind="stable")
    return values.tolist(), np.split(order, np.cumsum(np.bincount(codes))[:-1])
