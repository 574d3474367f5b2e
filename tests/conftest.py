import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported: scikit-learn's array API check then runs

import functools
import importlib.metadata
import itertools
import pkgutil
from collections.abc import Callable
from contextlib import contextmanager

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("fmtc", deadline=None)  # how long an example takes is the machine's affair
hypothesis.settings.load_profile("fmtc")

pytest.register_assert_rewrite("tests.conformance.suite")

os.fsync = lambda handle: None  # tests end processes and never the machine: nobody has to wait for the disk
importlib.metadata.version = functools.cache(importlib.metadata.version)


def _remember_keys():
    """Keys are made and looked at hundreds of times here, at a tenth of a second each: a few of them have to do."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError:
        return
    serialization.load_pem_private_key = functools.cache(serialization.load_pem_private_key)
    make, count = functools.cache(lambda place, exponent, size: rsa_key(exponent, size)), itertools.count()
    rsa_key = rsa.generate_private_key
    # one after the other of 24, more than any test needs at a time
    rsa.generate_private_key = lambda public_exponent, key_size, backend=None: make(
        next(count) % 24, public_exponent, key_size
    )


_remember_keys()


def _read_yaml_in_c():
    """FLARE's templates are thousands of lines, read for each kit: by libyaml in a tenth of the time."""
    try:
        import yaml

        yaml.safe_load = functools.partial(yaml.load, Loader=yaml.CSafeLoader)
    except (ImportError, AttributeError):
        return


_read_yaml_in_c()

Federation = dict[str, np.ndarray]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def make_federation() -> Callable[..., Federation]:
    """Clients "a", "b", ... that share the centres of k groups, each with its own shift, sizes and noise."""

    def make(m=3, n=60, d=6, k=3, *, distance=3.0, seed=0, dtype=np.float64) -> Federation:
        rng = np.random.default_rng(seed)
        sizes = np.broadcast_to(n, m)
        centers = rng.normal(size=(k, d))
        centers *= distance / np.linalg.norm(centers, axis=1, keepdims=True)
        data = {}
        for cid, size in zip("abcdefgh"[:m], sizes, strict=True):
            group = np.arange(size) % k
            X = centers[group] + rng.normal(size=(size, d)) + rng.normal(size=d)
            data[cid] = X.astype(dtype)
        return data

    return make


class Play:
    """A federation by hand: states of clients and server, and nothing between them."""

    def __init__(self, data, settings, weights=None):
        from fmtc.protocol.graph.view import METHOD

        self.settings, self.method = settings, METHOD
        self.clients = {cid: METHOD.open_client(cid, X, settings, "cpu") for cid, X in data.items()}
        self.server = METHOD.open_server(tuple(data), settings, weights)

    def asks(self, name):
        return self.method.phase(name).asks(self.server, self.settings)

    def ask(self, name, asks=None):
        """Answers of the clients, which take the step; the server stays where it is."""
        phase = self.method.phase(name)
        number = self.server.round_no + (name == "round")
        answers = {}
        for cid, ask in (self.asks(name) if asks is None else asks).items():
            self.clients[cid], answers[cid] = phase.reply(self.clients[cid], ask, self.settings, number)
        return answers

    def reduce(self, name, answers):
        """The server takes the step; the report of a round."""
        found = self.method.phase(name).reduce(self.server, answers, self.settings)
        self.server, report = found if name == "round" else (found, None)
        return report

    def phase(self, name):
        for _ in self.turns(name):
            self.reduce(name, self.ask(name))

    def turns(self, name):
        """How often a phase comes, by what the server knows by then."""
        turn = 0
        while turn < self.method.phase(name).times(self.server, self.settings):
            yield turn
            turn += 1

    def open(self):
        """Up to the first round."""
        for phase in self.method.opening:
            self.phase(phase.name)
        return self

    def rounds(self, n):
        for _ in range(n):
            self.phase("round")
        return self


@pytest.fixture
def play() -> type[Play]:
    return Play


@contextmanager
def _small_files():
    resource = pytest.importorskip("resource")  # POSIX only
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_files():
    """A context in which the system really refuses to write more than 500 bytes to a file, as a quota does."""
    return _small_files


@pytest.fixture
def full_disk():
    """A context in which it does so during one function, of this name."""

    @contextmanager
    def during(name):
        whole = pkgutil.resolve_name(name)

        def refused(*args, **options):
            with _small_files():
                return whole(*args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name, refused)
            yield

    return during
