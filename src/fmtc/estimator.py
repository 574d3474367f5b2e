"""FMTC, the scikit-learn face: checks input, calls the driver, exposes fitted attributes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import ClassifierTags, check_random_state
from sklearn.utils.validation import check_is_fitted

from .artifacts.models import MODEL_FILE, SavedModel, read_model, write_model
from .clients import ClientsMixin, is_mapping
from .errors import DataError, FileError, NotFiniteError
from .kernels.graph import association, knn_affinity, resolve_neighbors
from .linalg.arrays import HOST, check_device, to_numpy
from .linalg.neighbors import EXACT_UP_TO
from .runtime.driver import Callback, RoundRecord, Trials, run
from .runtime.local import LocalTransport
from .steps import DEFAULT_BETA, ClientModel, Hyper, assign, memberships, project, relative_beta

Array = np.ndarray


class FMTC(ClientsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Federated multi-task clustering: one model per silo, learnt together.

    Every client t solves ``min Tr(FᵀLF) + alpha ||F - XW||²`` over FᵀF = I for an embedding F of its rows and a
    projection W of its features; the projections of all clients are drawn towards a common low-rank structure by
    ADMM, and only they are exchanged. A new row x is labelled by the nearest centre to ``x W``. With one client it is
    spectral clustering that can predict.

    Parameters
    ----------
    n_clusters : int, default=8
        Clusters in every client.
    alpha : float, default=1.0
        How firmly the embedding is held to a linear function of the features.
    beta : float or "auto", default=0.15
        Strength of the coupling, as a fraction of the largest singular value of the first stack of projections: 0
        leaves the clients alone, 1 would shrink the first consensus to nothing. "auto" tries 0, 0.05, 0.15 and 0.4 on
        some rows of each client (2,500 at most) before the run, and takes the one whose clusters suit the fifth of
        them that is held back best, by a score without labels; each client tells one number for each beta.
    ridge : float, default=0.03
        Weight of the consensus in a client's regression, ``rho/(2 omega alpha)``, against data of mean squared row
        norm 1.
    schatten_p : float in (0, 1], default=1.0
        Exponent of the Schatten norm; below 1 small singular values are cut harder and large ones less.
    coupling : {"tensor", "subspace", "average"}, default="tensor"
        What is made low-rank: the d x k x m tensor of projections (the paper), or the matrix of all projections side
        by side, which depends neither on the order of clients nor on rotations. "average" draws all clients to one
        common projection, whatever `beta`: a control to compare with.
    align : {"loop", "init", "none"}, default="loop"
        Turn the clients' embeddings to a common frame: every round, after the first round only, or never (the paper).
    n_neighbors : int or "auto", default="auto"
        Neighbours in the graph of each client; "auto" is sqrt(n)/2, at least 10 and at most 30.
    bandwidth : float, default=None
        Width of the Gaussian edge weights in the units of X; None takes the mean distance to the neighbours.
    one_sided : float in (0, 1], default=0.25
        Times which an edge of the graph is taken where one of two rows has the other among its neighbours and not the
        other way round. 1 is the paper's graph; less keeps rows that are near to everybody from joining everything.
    n_inner : int, default=3
        Steps on the embedding for each new projection.
    accelerate : bool, default=True
        Take fewer rounds: a consensus step that looks ahead, longer steps on the embedding where the graph allows them,
        and from the third round on two passes over projection and embedding in each. False is the plain loop of the
        paper, which needs about twice as many rounds for the same objective.
    max_iter : int, default=25
        Largest number of rounds.
    tol : float, default=1e-3
        Stop when the relative primal and dual residuals are both below; 0 runs all rounds.
    scale : {"none", "client", "global", "tfidf"}, default="none"
        Give each column mean 0 and standard deviation 1 first: "client" among the rows of each client, "global" among
        those of all, from sums that the clients send. Columns of sparse data are divided by their root mean square
        and not shifted. "tfidf" is for counts of words: columns get the weight of rare words, found over all clients,
        and rows unit length. Models take rows as they come all the same.
    max_features : int, default=2000
        For "tfidf": how many columns are kept, those in most rows, of all in at least 2 and at most half of the rows.
    center : bool or "auto", default="auto"
        Subtract each client's own column means; "auto" does for dense data and does not for sparse.
    reweigh : int, default=0
        After so many rounds weigh the columns by how much the projections of all clients use them, and start the
        consensus anew from the embeddings reached: columns that nobody needs count less for everyone. Helps where most
        columns are noise, as words are. 0 never does.
    client_weights : mapping of client to float, default=None
        The paper's omega: how much each client's own data count against the consensus. None weighs all alike.
    labels_from : {"projection", "embedding"}, default="projection"
        Cluster the rows of XW, so that `predict` on the training rows gives `labels_`, or those of F (the paper).
    centers : {"auto", "own", "common"}, default="auto"
        Centres of a client: "own" ones by k-means of its projections, or "common" ones by k-means over those of all
        clients, of whom only sums are sent. "auto" lets each client decide, at home and without labels: common
        ones, unless its rows are clearly nearer to own centres made without them. A small client is better off with
        common centres, one unlike the others with its own. Without alignment, or with labels from F, "auto" is "own".
    n_init : int, default=10
        Restarts of k-means in each client.
    rho : float, default=None
        A number switches to the paper's absolute units: alpha, beta and rho as printed, no scaling of the data,
        `ridge` unused. See `as_published`.
    step_size : float, default=None
        The paper's eta; None takes 1/(2 + alpha), with which the objective cannot rise, or with `accelerate` 1/(l +
        alpha), l a bound on the graph's own spectrum that is found first.
    message_dtype : {"float32"}, default=None
        Round the matrices that clients and server send each other in every round, which halves the bytes of double
        precision. Both go on computing with all their digits. None sends them as they are.
    random_state : int, RandomState instance or None, default=None
        Decides the eigen-solver's start and k-means. The same int gives the same bytes, whatever `n_jobs`.
    n_jobs : int, default=None
        Clients worked on at the same time. None means 1, -1 all cores. Cores that clients leave help with the search
        for neighbours and, from 30,000 rows on, with products. Results do not depend on it.
    device : str, default="cpu"
        Where clients compute: "cpu", or a device of PyTorch such as "cuda" or "cuda:1" (``pip install 'fmtc[gpu]'``),
        for dense rows. Models, and predictions with them, are the same kind as ever. Labels of rows half way between
        two centres may differ from those of "cpu".
    verbose : int, default=0
        Above 0, one line per round on standard error.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. The same number means the same concept in all clients when `align` is on; number
        0 is large in most of them.
    client_ids_ : list of str
        Names of the clients, sorted.
    projections_ : dict of str to ndarray of shape (n_features, n_clusters)
        W of each client, for columns in the units of X. With "tfidf", for the kept columns only.
    cluster_centers_ : dict of str to ndarray of shape (n_clusters, n_clusters)
        Centres among the normalised projections of each client.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        F of the training rows; orthonormal columns within each client.
    consensus_ : ndarray of shape (n_features, n_clusters, n_clients)
        Z, the low-rank copy of the projections, for columns in the units that `scale` and `reweigh` give them.
    text_recipe_ : TextRecipe
        Only where the rows are texts that the command line has read: how to read more.
    beta_ : float or None
        The strength of the coupling that was used; None where a silo of a federation was not told.
    trials_ : Trials or None
        With ``beta="auto"``: the scores of each beta and client, and the bytes they took. Not saved.
    n_iter_ : int
        Rounds done.
    converged_ : bool
        Whether the residuals fell below `tol`.
    stopped_because_ : str
        Why the rounds ended, in words.
    history_ : list of RoundRecord
        Objective, augmented Lagrangian, residuals, rank, bytes and seconds of each round.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only where the input had column names.

    See Also
    --------
    sklearn.cluster.SpectralClustering : One silo, without `predict`.

    Examples
    --------
    Two silos with the same two groups, the second shifted and turned upside down in size:

    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> rng = np.random.default_rng(0)
    >>> def silo(n, shift):
    ...     centers = np.repeat([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0]], n, axis=0)
    ...     return centers + shift + rng.normal(size=centers.shape)
    >>> silos = {"north": silo(n=(40, 20), shift=0.0), "south": silo(n=(20, 40), shift=5.0)}
    >>> model = FMTC(n_clusters=2, random_state=0).fit(silos)
    >>> model.client_ids_
    ['north', 'south']
    >>> model.predict([[0.0, 4.0, 0.0], [5.0, 9.0, 5.0]], clients=["north", "south"])
    array([0, 0])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 1.0,
        beta: float | str = DEFAULT_BETA,
        ridge: float = 0.03,
        schatten_p: float = 1.0,
        coupling: str = "tensor",
        align: str = "loop",
        n_neighbors: int | str = "auto",
        bandwidth: float | None = None,
        one_sided: float = 0.25,
        n_inner: int = 3,
        accelerate: bool = True,
        max_iter: int = 25,
        tol: float = 1e-3,
        scale: str = "none",
        max_features: int = 2000,
        center: bool | str = "auto",
        reweigh: int = 0,
        client_weights: Mapping[Any, float] | None = None,
        labels_from: str = "projection",
        centers: str = "auto",
        n_init: int = 10,
        rho: float | None = None,
        step_size: float | None = None,
        message_dtype: str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = HOST,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.beta = beta
        self.ridge = ridge
        self.schatten_p = schatten_p
        self.coupling = coupling
        self.align = align
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.one_sided = one_sided
        self.n_inner = n_inner
        self.accelerate = accelerate
        self.max_iter = max_iter
        self.tol = tol
        self.scale = scale
        self.max_features = max_features
        self.center = center
        self.reweigh = reweigh
        self.client_weights = client_weights
        self.labels_from = labels_from
        self.centers = centers
        self.n_init = n_init
        self.rho = rho
        self.step_size = step_size
        self.message_dtype = message_dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    @classmethod
    def as_published(
        cls, n_clusters: int = 8, *, alpha: float = 1.0, beta: float = 1.0, rho: float = 1.0, **others: Any
    ) -> Self:
        """The algorithm as printed: absolute alpha, beta and rho, no scaling, centring or alignment, labels from F.

        Where the paper gives no value (step size, neighbours, inner steps, p) the defaults here apply and any
        parameter of the constructor may be given. docs/paper.md compares the two.

        Examples
        --------
        >>> from fmtc import FMTC
        >>> FMTC.as_published(4, alpha=10, beta=0.1, rho=1).get_params()["align"]
        'none'
        """
        printed: dict[str, Any] = {
            "align": "none", "center": False, "labels_from": "embedding", "n_neighbors": 10, "one_sided": 1.0,
            "accelerate": False, "n_inner": 5, "max_iter": 50,
        }  # fmt: skip
        return cls(n_clusters, alpha=alpha, beta=beta, rho=rho, **(printed | others))

    # ---------------------------------------------------------------------------------------------- fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        clients: Any = None,
        callbacks: Iterable[Callback] = (),
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn one model per client.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n_samples, n_features), or mapping of client to such
            With a mapping, rows are counted client after client in its order.
        y : ignored
        clients : array-like of shape (n_samples,), optional
            Name of the client of each row. Left out, all rows are one client.
        callbacks : iterable of callables, optional
            Each is called with a `RoundRecord` after every round.
        checkpoint : path, optional
            Folder that always holds the last completed round.
        resume : bool, default=False
            Go on from the checkpoint if it holds a round; the result is that of the undisturbed run, bit for bit.

        Returns
        -------
        self
        """
        parts = self._parts(X, clients, reset=True)
        if hasattr(self, "text_recipe_"):  # of rows it was fitted on before
            del self.text_recipe_
        hyper = self._hyper()
        check_device(self.device)
        silos = {cid: Xt for cid, (Xt, _) in parts.items()}
        transport = LocalTransport(silos, hyper, self.n_jobs, device=self.device)
        result = run(
            transport,
            hyper,
            weights=self._weights(),
            callbacks=[*callbacks, *([_print_round] if self.verbose else [])],
            checkpoint=checkpoint,
            resume=resume,
        )
        states = transport.clients
        n = sum(Xt.shape[0] for Xt, _ in parts.values())
        self.client_ids_ = list(result.server.client_ids)
        self._models = {cid: cast(ClientModel, states[cid].model) for cid in self.client_ids_}
        self.labels_ = np.empty(n, dtype=np.int64)
        self.embedding_ = np.empty((n, self.n_clusters), dtype=next(iter(self._models.values())).W.dtype)
        for cid, (_, rows) in parts.items():
            self.labels_[rows] = states[cid].labels
            self.embedding_[rows] = to_numpy(states[cid].F)
        self.consensus_ = result.server.Z
        self.history_: list[RoundRecord] = list(result.history)
        self.beta_: float | None = relative_beta(result.server, hyper)
        self.trials_: Trials | None = result.trials
        self.n_iter_ = result.server.round_no
        self.converged_: bool | None = result.converged
        self.stopped_because_ = result.stopped_because
        return self

    def _hyper(self) -> Hyper:
        """The settings of a run, checked; the seed is drawn from `random_state`."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Hyper(**{f.name: getattr(self, f.name) for f in fields(Hyper) if f.name != "seed"}, seed=seed)

    def _weights(self) -> dict[str, float] | None:
        weights = self.client_weights
        if weights is None:
            return None
        if not hasattr(weights, "items"):
            raise TypeError(
                "client_weights must be None or a mapping of client to number, such as {'north': 2, 'south': 1}, got "
                f"{weights!r}"
            )
        return {str(cid): w for cid, w in weights.items()}

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return the cluster of each row; a mapping of clients gives a mapping of labels.

        Takes the parameters of `fit`.
        """
        self.fit(X, **fit_params)
        return self._as_given(X, self.labels_)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return `transform` of the same rows. Takes the parameters of `fit`."""
        return self.fit(X, **fit_params).transform(X, clients=fit_params.get("clients"))

    # --------------------------------------------------------------------------------------------- new rows

    def predict(self, X: Any, *, clients: Any = None) -> Any:
        """Cluster of each row, by the model of the row's client.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n_samples, n_features), or mapping of client to such
        clients : array-like of shape (n_samples,), or one name for all rows; optional where the model has one client

        Returns
        -------
        ndarray of int of shape (n_samples,), or mapping of client to such
        """
        return self._each(X, clients, assign)

    def predict_proba(self, X: Any, *, clients: Any = None) -> Any:
        """Probability of each cluster, as if clusters were equally likely round Gaussians in the projection.

        Rows sum to one and are largest where `predict` says. Takes the parameters of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), or mapping of client to such
        """
        return self._each(X, clients, memberships)

    def transform(self, X: Any, *, clients: Any = None) -> Any:
        """Normalised projection of each row, the space `cluster_centers_` live in. Takes the parameters of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), or mapping of client to such
        """
        if is_mapping(X) and self._output_is_framed():
            raise TypeError("set_output frames the rows of one client; call transform for each: X[name], clients=name")
        return self._each(X, clients, lambda Xt, model: project(Xt, model.W, model.mean, model.keep))

    def score(self, X: Any, y: Any = None, *, clients: Any = None) -> float:
        """How well the predicted clusters keep neighbours together; needs no labels, higher is better.

        On a neighbour graph of the given rows of each client, scaled as `scale` says: the share of a cluster's edge
        weight that stays inside it, averaged over clusters (1 - Ncut/k), then over clients. Between 0 and 1; an empty
        cluster counts as 0.

        Parameters
        ----------
        X, clients
            As in `predict`; at least two rows of each client.
        y : ignored
        """
        check_is_fitted(self)
        shares = []
        for cid, (Xt, _) in self._parts(X, clients, reset=False).items():
            if Xt.shape[0] < 2:
                raise DataError(f"client {cid!r} has {Xt.shape[0]} row; score needs at least 2 rows of each client")
            model = self._models[cid]
            affinity = knn_affinity(model.scaled(Xt), self.n_neighbors, self.bandwidth, one_sided=self.one_sided)
            shares.append(association(affinity, assign(Xt, model), self._k))
        return float(np.mean(shares))

    # ------------------------------------------------------------------------------------------------ models

    @property
    def projections_(self) -> dict[str, Array]:
        """W of each client, d x k."""
        return {cid: model.W for cid, model in self._fitted_models.items()}

    @property
    def cluster_centers_(self) -> dict[str, Array]:
        """Centres among the normalised projections of each client, k x k."""
        return {cid: model.centers for cid, model in self._fitted_models.items()}

    @property
    def _fitted_models(self) -> dict[str, ClientModel]:
        if not hasattr(self, "_models"):
            raise AttributeError(f"this {type(self).__name__} instance is not fitted yet; call fit first")
        return dict(self._models)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Keep the fitted models in a folder: JSON and one safetensors file per client, no training row inside.

        Parameters
        ----------
        path : path
            Folder to make; refused if it exists, unless `overwrite`.

        Returns
        -------
        Path

        Examples
        --------
        >>> import tempfile, numpy as np, fmtc
        >>> X = np.random.default_rng(0).normal(size=(60, 4))
        >>> model = fmtc.FMTC(3, random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     same = fmtc.load(model.save(folder + "/model"))
        >>> bool((same.predict(X) == model.labels_).all())
        True
        """
        check_is_fitted(self)
        saved = SavedModel(
            params=self.get_params(),
            clients=self._models,
            n_features=self.n_features_in_,
            feature_names=getattr(self, "feature_names_in_", None),
            text=getattr(self, "text_recipe_", None),
            beta=self.beta_,
            n_iter=self.n_iter_,
            converged=self.converged_,
            stopped_because=self.stopped_because_,
            history=[asdict(record) for record in self.history_],
        )
        return write_model(Path(path), saved, overwrite=overwrite)

    def export_onnx(self, client: Any, path: str | Path, *, dtype: Any = np.float32) -> Path:
        """Write one client's model as plain ONNX operators: projection, row normalisation, nearest centre.

        Input ``X`` (rows x features); outputs ``label`` (int64) and ``probability``. Needs ``pip install
        'fmtc[onnx]'``.

        Parameters
        ----------
        client : str
            One of `client_ids_`.
        path : path
            File to write.
        dtype : float32 or float64
            Precision of input and arithmetic.

        Returns
        -------
        Path
        """
        from .artifacts.onnx import export_onnx

        check_is_fitted(self)
        return export_onnx(self._model_of(client), Path(path), dtype)

    # ------------------------------------------------------------------------------------------------- inside

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.classifier_tags = ClassifierTags()  # estimator checks look here for what predict_proba returns
        return tags

    def _output_is_framed(self) -> bool:
        here = getattr(self, "_sklearn_output_config", {})
        return here.get("transform", get_config()["transform_output"]) != "default"

    @property
    def _k(self) -> int:
        return len(next(iter(self._models.values())).centers)

    @property
    def _n_features_out(self) -> int:
        return self._k

    def _each(self, X: Any, clients: Any, answer: Callable[[Any, Any], Array], **checks: Any) -> Any:
        """Answer for every row by its client's model, in the order of the rows.

        Rows are looked at for NaN and infinity only where their projection, much smaller, has some.
        """
        try:
            return super()._each(X, clients, answer, ensure_all_finite=False, **checks)
        except NotFiniteError:
            self._parts(X, clients, reset=False)  # says what is wrong, and where
            raise


def estimate_memory(
    n_samples: int,
    n_features: int,
    n_clusters: int = 8,
    *,
    n_clients: int = 1,
    n_neighbors: int | str = "auto",
    dtype: Any = np.float64,
) -> int:
    """Bytes that a fit of dense rows takes at its peak, the rows themselves included.

    Good to a fifth or so. What decides is the number of entries in the graph, about 1.75 times rows times neighbours, a
    little more or less as rows agree on who is near; never rows times rows. With `n_jobs` the working space of a client
    is there as many times.

    Parameters
    ----------
    n_samples : int
        Rows of each client.
    n_features, n_clusters : int
    n_clients : int
        Clients in one process, worked on one after the other.
    n_neighbors : int or "auto"
    dtype : float64 or float32

    Returns
    -------
    int

    Examples
    --------
    Ten clients of 100,000 rows with 64 columns, in gigabytes:

    >>> from fmtc import estimate_memory
    >>> round(estimate_memory(100_000, 64, 10, n_clients=10, dtype="float32") / 1e9, 1)
    0.8
    """
    size, n, d, k = np.dtype(dtype).itemsize, n_samples, n_features, n_clusters
    pairs = n * resolve_neighbors(n_neighbors, n)
    laplacian = (1.75 * pairs + n) * (size + 4)
    found = pairs * (size + 8)
    search = found + (n * (8 * d + 150) + pairs * 9 if n > EXACT_UP_TO else pairs * size)
    joining = pairs * (4.6 * (size + 4) + size)
    start = laplacian + 5 * n * (k + max(4, k // 2)) * 8
    rounds = laplacian + 7 * n * k * size
    kept = laplacian + n * (size * (d + k) + 8)  # of a client at rest: rows, embedding, labels
    working = max(search, joining, 2.2 * laplacian, start, rounds) - laplacian
    return int(n_clients * kept + working)


def load(path: str | Path) -> FMTC:
    """Read a model that `FMTC.save` wrote. It predicts as it did, and contains no training row or label.

    Parameters
    ----------
    path : path
        Folder of the model.

    Returns
    -------
    FMTC
        Fitted, without `labels_`, `embedding_` and `consensus_`.

    Raises
    ------
    FileError
        If a file is missing, damaged, truncated, not from fmtc, or in a newer format.

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fmtc.FMTC(3, random_state=0).fit(X).save(folder + "/model")
    ...     model = fmtc.load(path)
    >>> model.predict(X).shape
    (60,)
    """
    saved = read_model(path)
    model = read_settings(Path(path) / MODEL_FILE, saved.params)
    model._models = dict(saved.clients)
    model.client_ids_ = list(saved.clients)
    model.n_features_in_ = saved.n_features
    if saved.feature_names is not None:
        model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    if saved.text is not None:
        model.text_recipe_ = saved.text
    model.beta_, model.trials_ = saved.beta, None
    model.n_iter_, model.converged_, model.stopped_because_ = saved.n_iter, saved.converged, saved.stopped_because
    model.history_ = [RoundRecord.from_dict(line) for line in saved.history]
    return model


def read_settings(file: Path, settings: Mapping[str, Any]) -> FMTC:
    """An estimator with the parameters that a file holds, or a `FileError` if `fit` would reject them."""
    try:
        model = FMTC(**settings)
        model._hyper()
    except (TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {error}") from None
    return model


def _print_round(record: RoundRecord) -> None:
    print(
        f"[FMTC] round {record.round_no}: objective {record.objective:.6g}, "
        f"residuals {record.primal_residual:.1e} / {record.dual_residual:.1e}",
        file=sys.stderr,
    )


__all__ = ["FMTC", "estimate_memory", "load"]
