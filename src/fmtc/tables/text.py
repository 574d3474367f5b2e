"""Texts as counts of hashed words: silos get the same columns without sharing a vocabulary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    import scipy.sparse as sp

WORD = re.compile(r"\b\w\w+\b")  # scikit-learn's: two or more letters, digits or underscores
SALT = "fmtc"
N_BUCKETS = 2**18


@dataclass(frozen=True)
class TextRecipe:
    """How rows were made from texts: everything needed to map more texts to the same columns."""

    text_column: str
    salt: str = SALT
    n_buckets: int = N_BUCKETS


def hashed_counts(texts: Iterable[str | None], salt: str = SALT, n_buckets: int = N_BUCKETS) -> sp.csr_array:
    """Counts of the words of each text, as 1 + ln(count); a keyed hash of the word selects its column.

    Words are two or more letters or digits, in lower case. Nobody can tell the word of a column without the salt.
    Another salt assigns other columns, so all silos need the same. Two words may get the same column by chance: of v
    different words about v²/(2 n_buckets) pairs do.

    Parameters
    ----------
    texts : iterable of str
        None is a text without words; such a text gets a row of zeros.
    salt : str
        Key of the hash.
    n_buckets : int
        Number of columns.

    Returns
    -------
    csr_array of shape (n_texts, n_buckets)

    Examples
    --------
    >>> from fmtc.tables import hashed_counts
    >>> X = hashed_counts(["to be or not to be", "Not so!", None], salt="secret", n_buckets=1000)
    >>> X.shape, [round(float(v), 2) for v in sorted(X.data)]
    ((3, 1000), [1.0, 1.0, 1.0, 1.0, 1.69, 1.69])
    """
    import numpy as np
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import HashingVectorizer

    if isinstance(n_buckets, bool) or not isinstance(n_buckets, int) or not 1 <= n_buckets < 2**31:
        raise InputError(f"n_buckets must be an integer from 1 to 2**31 - 1, got {n_buckets!r}")
    key = blake2b(salt.encode()).digest()

    @cache
    def token(word: str) -> str:
        return blake2b(word.encode(), key=key, digest_size=16).hexdigest()

    def analyze(text: str) -> list[str]:
        return [token(word) for word in WORD.findall(text.lower())]

    hashing = HashingVectorizer(n_features=n_buckets, analyzer=analyze, alternate_sign=False, norm=None)
    X = sp.csr_array(hashing.transform("" if text is None else text for text in texts))
    X.data = 1 + np.log(X.data)
    return X


def column_words(
    texts: Iterable[str | None], columns: Iterable[int], salt: str = SALT, n_buckets: int = N_BUCKETS
) -> dict[int, str]:
    """The most frequent word of some columns of `hashed_counts`, found by hashing all words of the texts again.

    Parameters
    ----------
    texts : iterable of str
        Those that the columns were made of.
    columns : iterable of int
    salt, n_buckets
        As in `hashed_counts`.

    Returns
    -------
    dict of int to str
        Columns that hold no word of these texts are omitted.

    Examples
    --------
    >>> from fmtc.tables import column_words, hashed_counts
    >>> X = hashed_counts(["fever and cough"], n_buckets=1000)
    >>> sorted(column_words(["fever and cough"], X.indices, n_buckets=1000).values())
    ['and', 'cough', 'fever']
    """
    counts = Counter(word for text in texts if text is not None for word in WORD.findall(text.lower()))
    words = [word for word, _ in counts.most_common()]
    wanted = {int(column) for column in columns}
    found: dict[int, str] = {}
    hashed = hashed_counts(words, salt, n_buckets)
    for word, column in zip(words, hashed.indices.tolist(), strict=True):
        if column in wanted:
            found.setdefault(column, word)
    return found


__all__ = ["TextRecipe", "column_words", "hashed_counts"]
