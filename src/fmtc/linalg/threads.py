"""Number of threads of the numerical libraries."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


@cache
def _thread_pools() -> Any:
    import scipy.linalg
    import sklearn.cluster
    from threadpoolctl import ThreadpoolController

    # The controller limits the libraries that are loaded now. Those the kernels import later must be among them, or
    # they would start with all threads inside a limited block.
    assert scipy.linalg and sklearn.cluster
    return ThreadpoolController()  # it reads the list of loaded libraries, which takes time: once per process


def one_thread(user_api: str) -> AbstractContextManager[Any]:
    """Limit a numerical library to one thread for the ``with`` block.

    The matrices of a round are small: more threads cost more than they save, and sums in another order change bits.

    Parameters
    ----------
    user_api : {"blas", "openmp"}
        ``"blas"`` is limited in the whole process, ``"openmp"`` in the current thread.
    """
    return _thread_pools().limit(limits=1, user_api=user_api)
