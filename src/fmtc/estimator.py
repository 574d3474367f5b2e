"""FMTC, the scikit-learn face: checks input, calls the driver, exposes fitted attributes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import ClassifierTags, check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from .advice import Advice, advice_of
from .artifacts.models import MODEL_FILE, SavedModel, read_model, write_model
from .artifacts.runs import model_folder, read_atlas, read_explanation, schema_of
from .confidence import LEVEL, Drift, silo_drift, together
from .describe import (
    Atlas,
    Explanation,
    Features,
    Lookup,
    RowExplanation,
    draw_models,
    empty_clusters_sentence,
    explain_row,
    explain_silos,
    held_words,
    presence_of,
)
from .errors import DataError, FileError, InputError, NotFiniteError, RowsWarning
from .kernels.encoding import expanded_width
from .kernels.graph import association, knn_affinity, resolve_neighbors
from .linalg.arrays import HOST, check_device
from .linalg.neighbors import EXACT_UP_TO
from .linalg.threads import one_thread
from .mixture.pooling import free_numbers
from .models import ClientModel, Presence, kind_of
from .models.shared import Shared
from .privacy.ledger import MemoryLedger, Total
from .protocol.advice import METHOD as ADVICE
from .protocol.advice import advice_settings, range_of
from .protocol.base import sent
from .protocol.graph.view import PROPOSAL
from .protocol.home import FEDERATED, TooFewError, calibrated
from .protocol.method import COMMON, ClientResult, view_method
from .protocol.outcome import kept as kept_of
from .protocol.state import client_weights as check_weights
from .rows import ClientsMixin, Remembered, is_mapping, refuse_names
from .runtime.driver import Callback, RoundRecord, RunRecord, run
from .runtime.local import LocalTransport
from .settings import DEFAULT_BETA, Privacy, Settings, Solver, check_number, split_solver

Array = np.ndarray


class FMTC(ClientsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Federated multi-task clustering: one model per silo, learnt together.

    Two views of a silo's rows, one estimator. The *mixture* view is for tables: the rows x of client t are draws from
    ``Σ_j π_tj N(x; μ_tj, Σ)``, with shares and means of its own and one shape Σ for all; means are drawn towards those
    of the other clients as far as clients are alike. The *graph* view, the paper's method, is for texts, pictures and
    other rows with many columns: client t solves ``min Tr(FᵀLF) + alpha ||F - XW||²`` over FᵀF = I for an embedding F
    of its neighbour graph and a projection W of its columns. Projections of all clients are drawn towards a common
    low-rank structure by ADMM, and clusters are found among the rows of XW. By default the data decide between the
    two. With one client, they are a Gaussian mixture and spectral clustering that can predict.

    Parameters
    ----------
    n_clusters : int, mapping of client to int, "auto" or a range such as "3..12", default=8
        Clusters of each client. "auto", or a range, first asks the rows, as `advise` does, and fits the number that it
        advises; a warning says so unless the advice is clear. To compare numbers, use `bic` of the mixture view, not
        `score`.
    n_concepts : int, default=None
        Clusters of all clients together, each with one number everywhere: at least as many as any client has. None:
        every client has all of them; with a mapping, their number is proposed from the clients' clusters, with a
        warning. Given, clients may lack concepts: the graph view matches their clusters before it couples them, and in
        the mixture view a client drops concepts that too few of its rows speak for, whatever `n_clusters` is.
    view : {"auto", "graph", "mixture"}, default="auto"
        "auto" decides without labels. Tables of at most 50 numbers: the mixture, unless rows of half of the clients
        fall into parts that no ellipse follows, such as rings. Many columns: the graph, unless the mixture keeps
        clearly more neighbours together. `view_` and `view_reason_` say what came of it.
    alpha : float, default=1.0
        Graph view: how firmly the embedding is held to a linear function of the columns.
    beta : float, default=0.15
        Graph view: strength of the coupling, as a fraction of the largest singular value of the first stack of
        projections. 0 leaves the projections of clients alone, 1 would shrink the first consensus to nothing. Clusters
        among them are still found together, unless ``solver.final`` is "kmeans". The mixture view does not use it: see
        ``solver.kappa``.
    coupling : {"auto", "tensor", "subspace", "average"}, default="auto"
        Graph view: what is made low-rank. The d x k x m tensor of projections (the paper), or the matrix of all
        projections side by side, which depends neither on the order of clients nor on rotations. "average" draws all
        clients to one common projection, whatever `beta`. "auto" is "tensor" for dense rows. For texts, which are
        sparse rows or ``scale="tfidf"``, it is "average", and clusters have the same centres everywhere, unless
        ``solver.kappa`` is given or `beta` is 0: silos have few rows for so many words. With ``view="graph"`` and
        ``scale="none"`` or "client" nobody asks whether rows are texts, and it is "tensor".
    scale : {"auto", "none", "client", "global", "tfidf"}, default="auto"
        Give each column mean 0 and standard deviation 1 first: "client" among the rows of each client, "global" among
        those of all, from sums that the clients send. "auto" is "global" for dense rows and "none" for sparse rows, for
        rows of unit length, and for counts and ink: more than 50 columns, a fifth of all cells 0, none negative. With
        "global", columns of sparse data are divided by their root mean square and not shifted. "tfidf" is for counts of
        words: columns get the weight of rare words, found over all clients, and rows unit length. Models take rows as
        they come all the same.
    max_iter : int, default=25
        Largest number of rounds of the graph view. The mixture's are smaller: it may take four times as many.
    tol : float, default=1e-3
        The graph view stops when the relative primal and dual residuals are both below, the mixture when the
        log-likelihood of a row changes by less than a thousandth of it, relative to its size; 0 runs all rounds.
    client_weights : mapping of client to float, default=None
        How much each client counts, relative to the others. Graph view: the paper's omega, its own data against the
        consensus. Mixture: how often each of its rows is counted in what all clients have in common. None weighs all
        clients of the graph view, and all rows of the mixture, alike.
    privacy : None, "sums" or Privacy, default=None
        What the server sees. None: every client's answers. "sums": only their sums over all clients, of which there
        must be at least three; masks that cancel in the sum hide the rest. A `Privacy`: these sums hold noise as well,
        so that no record shows; clusters are then found by a method of its own. With "sums", the graph view takes
        ``coupling="subspace"`` in place of "tensor", which needs more than sums. docs/privacy.md says what each keeps
        from whom.
    solver : Solver, default=None
        Details of the solver, see `Solver`; None takes its defaults. ``set_params(solver__kappa=10)`` works.
    random_state : int, RandomState instance or None, default=None
        Decides starts of the mixture, of the eigen-solver and of k-means. The same int gives the same bytes, whatever
        `n_jobs`.
    n_jobs : int, default=None
        Clients worked on at the same time. None means 1, -1 all cores. Cores that clients leave help with the search
        for neighbours and, from 30,000 rows on, with products. Results do not depend on it.
    device : str, default="cpu"
        Where clients compute: "cpu", or a device of PyTorch such as "cuda" or "cuda:1" (``pip install 'fmtc[gpu]'``),
        for dense rows. Models, and predictions with them, are the same kind as ever. Labels of rows half way between
        two clusters may differ from those of "cpu".
    verbose : int, default=0
        Above 0, one line per round on standard error.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. The same number means the same concept in all clients (with ``solver.align``);
        number 0 is large in most of them. A client may have no row in a cluster: a concept that only others have.
    n_concepts_, n_clusters_ : int
        Clusters of all clients together.
    k_advice_ : Advice
        What was advised; only where `n_clusters` is "auto" or a range, and not in a model that was loaded.
    client_ids_ : list of str
        Names of the clients, sorted.
    view_ : {"graph", "mixture", "anchors"}
        The view of the model.
    view_reason_ : str
        Why `view="auto"` chose it, in words; empty where it did not choose, or the model was loaded.
    kappa_ : ndarray of shape (n_concepts,)
        Pooling strength of each concept: as many rows of its own outweigh, in a client, what the others know. From 0.1,
        clients that have little in common, to 1000, clients that share the concept; infinite where all clients have the
        same means, as for texts (see `coupling`). Not in a model that was loaded, nor with ``solver.final="kmeans"``.
    cluster_centers_ : dict of str to ndarray of shape (n_concepts, n_features) or (n_concepts, n_concepts)
        Mixture view: means of each client, in the units of X; numbers first, then the shares of each level of each
        category. Graph view: centres among the normalised projections.
    projections_ : dict of str to ndarray of shape (n_features, n_concepts)
        Graph view only. W of each client, for columns in the units of X. With "tfidf", for the kept columns only; where
        columns are lifted, for the lifted ones.
    embedding_ : ndarray of shape (n_samples, n_concepts)
        Graph view only. F of the training rows; orthonormal columns within each client, 0 for concepts that it lacks.
    consensus_ : ndarray of shape (n_features, n_concepts, n_clients)
        Graph view only. Z, the low-rank copy of the projections, for columns in the units that `scale` gives them.
    roster_code_ : str
        Only with `privacy`, and not in a model that was loaded. 16 digits that stand for who took part and with which
        keys: the same at all clients, to be compared by telephone.
    agreement_ : dict of str to float
        Graph view only, where the fit was in this process. Of each client, the adjusted Rand index of its labels and of
        those that k-means finds in its embedding, from at most 2000 rows.
    choice_ : dict of str to {"federated", "public", "alone"}
        Which model each client kept: the common one, or one of its own, where it compared the two (``solver.exit``) and
        the common one cut clearly more neighbours apart. Not in a model that was loaded.
    influence_ : ndarray of shape (n_clients, n_clients)
        Who pulls whom, in the order of `influence_ids_`: how far what the common model says of the client of the row
        moves when the client of the column is left out. Graph view: its slice of the consensus, relative to its norm.
        Mixture: its means, in units of the common covariance. Not for more than 64 clients of the graph view, nor where
        they lack concepts there, nor in a model that was loaded.
    influence_ids_ : list of str
        Clients of the rows and columns of `influence_`.
    joined_ : Joined
        Only of a newcomer, see `fmtc.join_later`: whether it follows the federation, and why.
    held_ : list of str
        Clients that were set aside or refused, or whose messages were made smaller in half of the rounds or more
        (``solver.contain``); empty in most runs. Do not take their cluster numbers for those of the others.
    atlas_ : Atlas
        The concepts: name, features, share in each silo, and whether silos agree on them. Made of the models, without a
        row; also of a model that was loaded. Reading it computes it.
    schema_ : Schema
        Only where the input was a data frame: which columns are numbers and which categories, with their levels.
    text_recipe_ : TextRecipe
        Only where the rows are texts that the command line has read: how to read more.
    privacy_ : dict
        Private runs only: what is promised (epsilon and delta, a record replaced, clients that work together),
        and what was released (stages, sensitivities, noise).
    n_iter_ : int
        Rounds done in the view that was chosen.
    converged_ : bool
        Whether the rounds ended by `tol`.
    stopped_because_ : str
        Why the rounds ended, in words.
    history_ : list of RoundRecord
        Objective, bytes and seconds of each round; in the graph view also augmented Lagrangian, residuals and rank. The
        mixture's objective is the negative penalised log-likelihood of a row.
    received_ : list of Total
        What the server received: times and bytes of each field of each phase, over all clients. For a client that
        joined a federation, what it sent. Empty for a model that was loaded.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only where the input had column names.

    See Also
    --------
    sklearn.mixture.GaussianMixture : One silo, no missing cells, no categories.
    sklearn.cluster.SpectralClustering : One silo, without `predict`.

    Notes
    -----
    Cells may be missing (NaN, or null in a data frame) in `fit`, `predict` and all other methods. In the mixture of at
    most 50 columns a missing cell says nothing: EM takes its expectation given the other cells of the row. The graph
    view, and a mixture of more columns, put the column's mean in its place.

    Examples
    --------
    Two silos with the same two groups, the second shifted, with other shares and with a gap:

    >>> import numpy as np
    >>> from fmtc import FMTC
    >>> rng = np.random.default_rng(0)
    >>> def silo(n, shift):
    ...     centers = np.repeat([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0]], n, axis=0)
    ...     return centers + shift + rng.normal(size=centers.shape)
    >>> silos = {"north": silo(n=(40, 20), shift=0.0), "south": silo(n=(20, 40), shift=5.0)}
    >>> silos["south"][3, 1] = np.nan
    >>> model = FMTC(n_clusters=2, random_state=0).fit(silos)
    >>> model.view_
    'mixture'
    >>> same = model.predict([[0.0, 4.0, 0.0], [5.0, 9.0, np.nan]], clients=["north", "south"])
    >>> bool(same[0] == same[1])
    True
    """

    takes_missing = True
    # with metadata routing, scikit-learn's searches and pipelines pass `clients` along unasked
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"clients": True}
    __metadata_request__partial_fit = __metadata_request__score = __metadata_request__fit
    __metadata_request__predict = __metadata_request__predict_proba = __metadata_request__fit
    __metadata_request__transform = __metadata_request__fit
    _presence: dict[str, Presence]  # share of each concept in the rows of each client
    _told: dict[str, list[tuple[float, str]]]  # cosines and flags by the server of a federation, of a silo alone here
    _shared: Shared | None  # what all clients have in common, where the server's end of the run is known

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        n_concepts: int | None = None,
        view: str = "auto",
        alpha: float = 1.0,
        beta: float = DEFAULT_BETA,
        coupling: str = "auto",
        scale: str = "auto",
        max_iter: int = 25,
        tol: float = 1e-3,
        client_weights: Mapping[Any, float] | None = None,
        privacy: Any = None,
        solver: Solver | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = HOST,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.n_concepts = n_concepts
        self.view = view
        self.alpha = alpha
        self.beta = beta
        self.coupling = coupling
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.client_weights = client_weights
        self.privacy = privacy
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the solver as ``solver__name``."""
        if self.solver is None and "solver" not in params and any(name.startswith("solver__") for name in params):
            self.solver = Solver()
        return super().set_params(**params)

    @classmethod
    def as_published(
        cls, n_clusters: int = 8, *, alpha: float = 1.0, beta: float = 1.0, rho: float = 1.0, **others: Any
    ) -> Self:
        """The algorithm as printed: absolute alpha, beta and rho, no scaling, centring or alignment, labels from F.

        Where the paper gives no value (step size, neighbours, inner steps, p) the defaults here apply. Any parameter of
        the constructor or of `Solver` may be given. docs/paper.md compares the two.

        Examples
        --------
        >>> from fmtc import FMTC
        >>> FMTC.as_published(4, alpha=10, beta=0.1, rho=1).solver.align
        False
        """
        printed: dict[str, Any] = {
            "view": "graph", "coupling": "tensor", "scale": "none", "lift": False, "final": "kmeans",
            "align": False, "center_features": False, "labels_from": "embedding", "n_neighbors": 10,
            "nonmutual_weight": 1.0, "accelerate": False, "n_inner": 5, "max_iter": 50, "contain": False, "exit": False,
        }  # fmt: skip
        return cls(n_clusters, **split_solver({"alpha": alpha, "beta": beta, "rho": rho, **printed, **others}))

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
        clients : array-like of shape (n_samples,), or name of a column of X, optional
            Name of the client of each row. A column is set aside, in later calls as well. Left out, all rows are one
            client.
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
        if clients is None:
            refuse_names(y)
        parts = self._parts(X, clients, reset=True)
        if clients is not None and not isinstance(clients, str) and len(parts) > 1:
            _refuse_blind_search(sys._getframe(1))
        if hasattr(self, "text_recipe_"):  # of rows it was fitted on before
            del self.text_recipe_
        check_device(self.device)
        silos = {cid: Xt for cid, (Xt, _) in parts.items()}
        self.__dict__.pop("k_advice_", None)
        ledgers: Mapping[str, MemoryLedger] | None = None
        before: tuple[Total, ...] = ()
        if isinstance(self.n_clusters, str):
            self.k_advice_ = self._advised(silos, self.n_clusters)
            warn_of_advice(self.k_advice_)
            ledgers, before = self.__dict__.pop("_asked")
        settings = self._settled(silos)
        if settings.privacy == "sums":
            from .protocol.sums.view import refuse_large

            known = getattr(self, "schema_", None)
            refuse_large(silos, getattr(self, "feature_names_in_", None) if known is None else known.names)
        if isinstance(settings.privacy, Privacy) and settings.privacy.rows is not None:
            from .protocol.private.view import gate

            gate(settings, settings.privacy.rows, expanded_width(settings.levels, self.n_features_in_))
        method = view_method(settings.view, settings.privacy)
        self._run_settings = settings
        if len(silos) == 1 and settings.solver.calibration != "none":  # folds that owe nothing to others: `calibrate`
            settings = replace(settings, solver=replace(settings.solver, calibration="none"))
        transport = LocalTransport(silos, settings, self.n_jobs, method=method, device=self.device, ledgers=ledgers)
        result = run(
            transport,
            settings,
            method=method,
            weights=self._weights(silos),
            callbacks=[*callbacks, *([_print_round] if self.verbose else [])],
            checkpoint=checkpoint,
            resume=resume,
        )
        places = {cid: rows for cid, (_, rows) in parts.items()}
        self._adopt(result, transport.results(), places)
        self.received_[:0] = before
        self._shared = kept_of(result.server, settings)
        self._ledgers = transport.ledgers
        self._fitted_on = Remembered.of(X, clients)
        if settings is not self._run_settings:
            self.calibrate(X, clients=clients)
        return self

    def advise(self, X: Any, *, clients: Any = None, k_range: Any = None) -> Advice:
        """How many clusters the rows speak for: advice with a range, from all clients and without labels.

        Where the rows of most clients fall into several large parts that do not touch, the advice is their number.
        Else it is the number of eigenvalues before the largest step in the spectrum of the clients' neighbour graphs,
        and the range has all numbers with a step nearly as large.

        It is advice: see `Advice.text`. Nothing of the estimator changes; `scale`, `solver` and `random_state` count.

        Parameters
        ----------
        X, clients
            As in `fit`. At most 1,200 rows of each client are looked at.
        k_range : "auto", text such as "3..12" or pair of int, optional
            Numbers to compare; by default those of `n_clusters`, if it is not a number. "auto" is 2 to 30, but at least
            four rows of the smallest client for each cluster.

        Returns
        -------
        Advice

        Examples
        --------
        >>> import numpy as np
        >>> from fmtc import FMTC
        >>> rng = np.random.default_rng(0)
        >>> centers = rng.normal(size=(4, 60)).repeat(25, axis=0)
        >>> silos = {name: centers + rng.normal(size=centers.shape) for name in ("north", "south", "west")}
        >>> advice = FMTC(random_state=0).advise(silos, k_range="2..8")
        >>> advice.chosen, advice.low, advice.high, advice.verdict
        (4, 4, 4, 'range')
        """
        model = clone(self)
        parts = model._parts(X, clients, reset=True)
        if k_range is None and isinstance(self.n_clusters, str):
            k_range = self.n_clusters
        return model._advised({cid: Xt for cid, (Xt, _) in parts.items()}, k_range)

    def _advised(self, silos: Mapping[str, Any], k_range: Any) -> Advice:
        """Advice from the rows of each client."""
        settings = advice_settings(self.settings(n_clusters=2), range_of(k_range))
        transport = LocalTransport(silos, settings, self.n_jobs, method=ADVICE, run_id="advice")
        result = run(transport, settings, method=ADVICE)
        self._asked = transport.ledgers, result.received
        return advice_of(result.common, result.client_ids)

    def _adopt(
        self,
        result: RunRecord,
        clients: Mapping[str, ClientResult],
        places: Mapping[str, Any] | None = None,
        *,
        n_features: int | None = None,
        n_iter: int | None = None,
    ) -> Self:
        """Become the model that a run came to: the only way from a result to a fitted estimator.

        Parameters
        ----------
        result : RunRecord
            Without clients where only one client's end is known.
        clients : mapping of client id to ClientResult
            Models and labels of those clients that are known here.
        places : mapping of client id to index, optional
            Where the rows of each client stand in the input; by default one client after the other, in the order of
            `clients`.
        n_features : int, optional
            Columns of the rows, where `fit` has not counted them.
        n_iter : int, optional
            Rounds done, where the history is not known here.
        """
        self._restore({cid: clients[cid].model for cid in sorted(clients)}, result, n_features, n_iter)
        sizes = {cid: len(client.labels) for cid, client in clients.items()}
        if places is None:
            ends = np.cumsum([0, *sizes.values()])
            places = {cid: slice(ends[t], ends[t + 1]) for t, cid in enumerate(sizes)}
        self.__dict__.pop("agreement_", None)
        measured = {cid: clients[cid].agreement for cid in sorted(clients)}
        if self.view_ == "graph" and any(value is not None for value in measured.values()):
            self.agreement_ = {cid: value for cid, value in measured.items() if value is not None}
            _warn_of_missed_parts([cid for cid in measured if clients[cid].misses])
        self.choice_ = {cid: clients[cid].choice or FEDERATED for cid in sorted(clients)}
        if self.held_:
            warnings.warn(held_words(self.held_, self.choice_), UserWarning, stacklevel=3)
        self._homes = {cid: clients[cid].home for cid in sorted(clients)}
        if not isinstance(self.privacy, Privacy):  # a private run promises that nothing but its sums is kept of rows
            self._presence = {cid: presence_of(clients[cid].labels, self._k) for cid in sorted(clients)}
        self._sizes = {cid: np.bincount(clients[cid].labels, minlength=self._k) for cid in sorted(clients)}
        own = self.n_concepts is not None or isinstance(self.n_clusters, Mapping)
        if own:
            _warn_of_strangers(self._sizes)
        if result.client_ids and (said := empty_clusters_sentence(self._sizes.values())):
            warnings.warn(said, RowsWarning, stacklevel=3)  # of all silos: that one lacks a cluster is no news
        self.labels_ = np.empty(sum(sizes.values()), dtype=np.int64)
        for cid, client in clients.items():
            self.labels_[places[cid]] = client.labels
        if any(client.embedding is None for client in clients.values()):
            self.__dict__.pop("embedding_", None)
            return self
        dtype = next(client.embedding.dtype for client in clients.values() if client.embedding is not None)
        self.embedding_ = np.empty((len(self.labels_), self._k), dtype=dtype)
        for cid, client in clients.items():
            self.embedding_[places[cid]] = client.embedding
        return self

    def _restore(
        self, models: Mapping[str, ClientModel], result: RunRecord, n_features: int | None, n_iter: int | None
    ) -> None:
        """Models of clients, and how their run ended: what a saved model keeps."""
        self._models = dict(models)
        self.n_concepts_ = self.n_clusters_ = self._k
        self._presence, self._told = {}, {}
        self.client_ids_ = list(models)
        if n_features is not None:
            self.n_features_in_ = n_features
        for name in ("consensus_", "kappa_", "common_centers_", "influence_", "influence_ids_", "choice_",
                     "roster_code_", "privacy_", "joined_"):  # fmt: skip
            self.__dict__.pop(name, None)
        self._shared = result.shared
        if isinstance(self.privacy, Privacy):
            from .protocol.private.view import promise

            n_clients = len(result.client_ids) or None
            self.privacy_: dict[str, Any] = promise(self.settings(), n_clients, self.n_features_in_)
        self.view_ = kind_of(models)
        self.view_reason_ = result.why
        consensus = result.common.get("consensus") if self.view_ == "graph" else None
        if consensus is not None and consensus.size:  # the server of a run by sums has none
            self.consensus_ = consensus
        if result.roster:
            self.roster_code_ = result.roster
        if "kappa" in result.common:
            self.kappa_ = result.common["kappa"]
        self.held_: list[str] = list(result.held)
        if "influence" in result.common:
            self.influence_: Array = result.common["influence"]
            self.influence_ids_ = list(result.client_ids)
        self.history_: list[RoundRecord] = result.rounds
        self.received_: list[Total] = list(result.received)
        self.n_iter_ = len(self.history_) if n_iter is None else n_iter
        self.converged_: bool | None = result.converged
        self.stopped_because_ = result.stopped_because

    def settings(self, n_clusters: int | None = None) -> Settings:
        """The settings of a run, checked; the seed is drawn from `random_state`.

        Parameters
        ----------
        n_clusters : int, optional
            In place of the parameter; where that is "auto" or a range, by default what was advised.
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        solver = Solver() if self.solver is None else self.solver
        names = {f.name for f in fields(Settings)} - {"seed", "solver", "levels", "n_clusters", "own_clusters"}
        schema = getattr(self, "schema_", None)
        levels = () if schema is None or schema.is_plain else schema.levels
        values = {name: getattr(self, name) for name in names}
        if isinstance(self.n_clusters, str):
            if self.n_clusters != "auto" and ".." not in self.n_clusters:
                raise TypeError(
                    'n_clusters must be a whole number, a mapping of client to number, "auto" or a range such as '
                    f'"3..12", got {self.n_clusters!r}'
                )
            range_of(self.n_clusters)
            if self.privacy is not None:
                raise ValueError(
                    f"n_clusters={self.n_clusters!r} shows the server what each silo alone has found, which privacy "
                    "forbids: give a number"
                )
        if self.privacy == "sums" and self.coupling in ("auto", "tensor") and solver.rho is None:
            values["coupling"] = "subspace"  # the tensor needs every single projection
        k, own = self._numbers() if n_clusters is None else (n_clusters, None)
        return Settings(**values, n_clusters=k, own_clusters=own, solver=solver, levels=levels, seed=seed)

    def _numbers(self) -> tuple[Any, Any]:
        """Concepts of all clients, and clusters of a client where it may have fewer."""
        k, K = self.n_clusters, self.n_concepts
        if isinstance(k, str) and hasattr(self, "k_advice_"):
            k = self.k_advice_.chosen
        if not isinstance(k, Mapping):
            return (k, None) if K is None else (K, k)
        if not k:
            raise InputError("n_clusters is a mapping without a client; give one number, or one for each client")
        if K is None:  # proposed by the rows; before that, the least that there can be
            K = getattr(self, "_proposed", None) or max(k.values())
        return K, {str(cid): value for cid, value in k.items()}

    def _settled(self, silos: Mapping[str, Any]) -> Settings:
        """The settings of a run with these clients, the number of concepts among them."""
        self.__dict__.pop("_proposed", None)
        settings = self.settings()
        if not isinstance(self.n_clusters, Mapping):
            return settings
        self._check_names(silos)
        if self.n_concepts is not None:
            return settings
        asked = replace(settings, view="graph", n_clusters=max(settings.own_clusters.values()))
        transport = LocalTransport(silos, asked, self.n_jobs, method=PROPOSAL, device=self.device)
        self._proposed: int = run(transport, asked, method=PROPOSAL).server.proposed
        warnings.warn(
            f"n_concepts was not given: the clusters of {len(silos)} clients look like {self._proposed} concepts. That "
            "is a proposal, and may be off by one or two; give n_concepts if you know better.",
            UserWarning,
            stacklevel=3,
        )
        return replace(settings, n_clusters=self._proposed)

    def _check_names(self, client_ids: Iterable[str]) -> None:
        """Raise `InputError` where numbers of clusters are given by client, and not for these clients."""
        if isinstance(self.n_clusters, Mapping):
            given, there = set(map(str, self.n_clusters)), set(client_ids)
            unknown, missing = sorted(given - there), sorted(there - given)
            if unknown or missing:
                raise InputError(
                    f"n_clusters must name each client once; missing: {missing or 'none'}, unknown: {unknown or 'none'}"
                )

    def _weights(self, client_ids: Iterable[str]) -> dict[str, float] | None:
        """The weights by client id, checked before anything is read or started."""
        weights = self.client_weights
        if weights is None:
            return None
        if not hasattr(weights, "items"):
            raise TypeError(
                "client_weights must be None or a mapping of client to number, such as {'north': 2, 'south': 1}, got "
                f"{weights!r}"
            )
        found = {str(cid): w for cid, w in weights.items()}
        check_weights(sorted(client_ids), found)
        return found

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return the cluster of each row; a mapping of clients gives a mapping of labels.

        Takes the parameters of `fit`.
        """
        self.fit(X, y, **fit_params)
        return self._as_given(X, self.labels_)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return `transform` of the same rows. Takes the parameters of `fit`."""
        return self.fit(X, **fit_params).transform(X, clients=fit_params.get("clients"))

    # --------------------------------------------------------------------------------------------- new rows

    def predict(self, X: Any, *, clients: Any = None, abstain: float | None = None) -> Any:
        """Cluster of each row, by the model of the row's client.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n_samples, n_features), or mapping of client to such
        clients : array-like of shape (n_samples,), or one name for all rows
            Optional where the model has one client, or X the column of clients that `fit` was given.
        abstain : float, optional
            Share of rows to give no cluster: -1 where `confidence` is below. It holds for rows like those of fit; of
            others, more are left out.

        Returns
        -------
        ndarray of int of shape (n_samples,), or mapping of client to such
        """
        share = 0.0 if abstain is None else abstain
        check_number("abstain", share, Real, "None or a share from 0 to below 1", lambda v: 0 <= v < 1)
        if not share:
            return self._each(X, clients, lambda Xt, model: model.assign(Xt))

        def answer(Xt: Any, model: Any) -> Array:
            doubtful = self._calibrated(model).confidence(Xt) < share
            return np.where(doubtful, -1, model.assign(Xt))

        return self._each(X, clients, answer)

    def confidence(self, X: Any, *, clients: Any = None) -> Any:
        """How certain the cluster of each row is: the share of the silo's own rows that are less certain.

        A row is in doubt where two clusters claim it, and where it is unlike all of them. The silo's rows are scored by
        models that have not seen them, so that a tenth of new rows like them lies below 0.1. Takes the parameters of
        `predict`. The first call takes longer: see `calibrate`.

        Returns
        -------
        ndarray of shape (n_samples,), or mapping of client to such

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (60, 2))])
        >>> model = fmtc.FMTC(2, random_state=0).fit(X)
        >>> sure, unsure = model.confidence([[0.0, 0.0], [3.0, 3.0]])
        >>> bool(sure > 0.5), bool(unsure < 0.1)
        (True, True)
        >>> int(model.predict([[3.0, 3.0]], abstain=0.1)[0])
        -1
        """
        return self._each(X, clients, lambda Xt, model: self._calibrated(model).confidence(Xt))

    def drift(self, X: Any, *, clients: Any = None, level: float = LEVEL) -> Drift:
        """Whether new rows still are what the models were made for: a test for each silo, and one for all.

        Rows that fit their model less well than the silo's own rows fitted models which had not seen them speak for
        drift: a group that nobody knew, another machine. The test compares ranks. One p-value of each silo makes that
        of all (Stouffer), which sees a change that reaches several silos much sooner than one silo can.

        Parameters
        ----------
        X, clients
            As in `predict`: a batch of new rows, not those of fit.
        level : float, default=0.05
            Share of false alarms that is accepted.

        Returns
        -------
        Drift
            `p_value` and `verdict` for all silos together, `silos` for each: `p_value`, `share_low`, `expected`, `n`,
            `verdict`. Prints as text.

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (60, 2))])
        >>> model = fmtc.FMTC(2, random_state=0).fit(X)
        >>> print(model.drift(rng.normal(3, 1, (50, 2))))
        all: drift (p = below 0.0001; 98 % of 50 rows fit badly, 10 % expected)
        """
        check_is_fitted(self)
        check_number("level", level, Real, "a number between 0 and 1", lambda v: 0 < v < 1)
        found = []
        parts = self._parts(X, clients, reset=False, ensure_all_finite="allow-nan")
        for cid, (Xt, _) in parts.items():
            found.append(silo_drift(cid, Xt, self._calibrated(self._models[cid]), level))
        return together(found, level)

    def calibrate(self, X: Any = None, *, clients: Any = None) -> Self:
        """Learn what scores of new rows are worth, for `confidence`, ``predict(abstain=)`` and `drift`.

        Each silo fits its model again to four fifths of its rows, with what it knows from the others as it is, and
        scores the other rows: five times, or fewer where it has thousands of rows. Takes up to half as long as
        `fit`. These methods do it by themselves where the rows of `fit` are still there; with
        ``Solver(calibration="folds")``, `fit` does it. A model that is saved keeps it.

        Parameters
        ----------
        X, clients
            The rows of `fit`; without X, those of `fit` as long as you keep them. A silo of fewer than 20 rows, or of
            few for its clusters, is left out with a warning.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, clients = self._known_rows(X, clients)
        for cid, (Xt, _) in self._parts(X, clients, reset=False).items():
            try:
                self._calibrate(cid, Xt)
            except TooFewError as error:
                warnings.warn(str(error), UserWarning, stacklevel=2)
        return self

    def _calibrate(self, cid: str, X: Any) -> None:
        """Calibrate the model of one client with its rows of fit."""
        model, home = self._models[cid], getattr(self, "_homes", {}).get(cid)
        if home is None:
            model.calibrated()  # says that it cannot be, unless it was
            return
        n = int(self._sizes[cid].sum())
        if X.shape[0] != n:
            raise DataError(f"client {cid!r} was fitted on {n} rows, got {X.shape[0]}: calibrate takes the rows of fit")
        if len(self.client_ids_) == 1:  # nothing came from others
            home = replace(home, common=None)
        with one_thread("blas"):
            found = calibrated(home, X, model)
        self._models = {**self._models, cid: replace(model, calibration=found)}

    def _calibrated(self, model: Any) -> Any:
        """A model of this estimator, calibrated now if it was not and its rows are still there."""
        if model.calibration is not None:
            return model
        cid = next(cid for cid, other in self._models.items() if other is model)
        kept: Remembered | None = getattr(self, "_fitted_on", None)
        rows = None if kept is None or getattr(self, "_homes", {}).get(cid) is None else kept.recall()
        if kept is None or rows is None:
            return model
        if is_mapping(rows):
            rows = {key: Xt for key, Xt in rows.items() if str(key) == cid}
        self._calibrate(cid, self._parts(rows, kept.clients, reset=False)[cid][0])
        return self._models[cid]

    def predict_proba(self, X: Any, *, clients: Any = None) -> Any:
        """Probability of each cluster: its share times its density at the row, relative to all clusters.

        These are posterior probabilities of the mixture, over columns or over projections. With ``solver.final=
        "kmeans"``, as if clusters were equally likely round Gaussians in the projection. Rows sum to one and are
        largest where `predict` says; those of concepts that a client lacks are 0. They compare clusters with each other
        only: a row far from all of them is nearly 1 in the nearest one, and `predict_outliers` finds it. Takes the
        parameters of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_concepts), or mapping of client to such
        """
        return self._each(X, clients, lambda Xt, model: model.probabilities(Xt))

    def predict_outliers(self, X: Any, *, clients: Any = None, level: float = 1e-3) -> Any:
        """Whether each row is further from all clusters than all but a share `level` of the rows of a Gaussian cluster.

        Takes the parameters of `predict`; the mixture view only.

        Returns
        -------
        ndarray of bool of shape (n_samples,), or mapping of client to such
        """
        check_is_fitted(self)
        if self.view_ != "mixture":
            raise InputError('predict_outliers needs the mixture view: fit with view="mixture"')
        check_number("level", level, Real, "a number between 0 and 1", lambda v: 0 < v < 1)
        return self._each(X, clients, lambda Xt, model: model.outliers(Xt, level))

    def transform(self, X: Any, *, clients: Any = None) -> Any:
        """Normalised projection of each row; in the mixture view, its distance to each cluster in units of their shape.

        Takes the parameters of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_concepts), or mapping of client to such
        """
        if is_mapping(X) and self._output_is_framed():
            raise TypeError("set_output frames the rows of one client; call transform for each: X[name], clients=name")
        return self._each(X, clients, lambda Xt, model: model.transform(Xt))

    def score(self, X: Any, y: Any = None, *, clients: Any = None) -> float:
        """How well the predicted clusters keep neighbours together; needs no labels, higher is better.

        On a neighbour graph of the given rows of each client, scaled as `scale` says: the share of a cluster's edge
        weight that stays inside it, averaged over clusters (1 - Ncut/k), then over clients. Between 0 and 1; an empty
        cluster counts as 0.

        Not a way to choose `n_clusters`: it falls with their number, so that a grid search over it picks the fewest.
        `bic` of the mixture view and `advise` are.

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
            solver = Solver() if self.solver is None else self.solver
            affinity = knn_affinity(
                model.scaled(Xt), solver.n_neighbors, solver.bandwidth, nonmutual_weight=solver.nonmutual_weight
            )
            shares.append(association(affinity, model.assign(Xt), self._k))
        return float(np.mean(shares))

    def bic(self, X: Any, *, clients: Any = None) -> float:
        """Bayesian information criterion on the rows of fit, lower is better: which number of clusters to take.

        ``-2 log-likelihood + ν log n`` for n rows in the units of X, as in `sklearn.mixture.GaussianMixture`, whose
        tied mixture it equals for one silo. ν counts the shape Σ once, the shares of each silo, and its means as far as
        its own rows decide them: each silo's own where nothing is pooled, one for all silos where all is. Compare
        models of the same rows with the same `scale`.

        The mixture view of at most 50 columns only. For the graph view, which has no likelihood, use `advise` or
        ``n_clusters="auto"``.

        Parameters
        ----------
        X, clients
            As in `fit`, and the same rows.

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(6 * np.eye(4), 40, axis=0) + rng.normal(size=(160, 4))
        >>> models = {k: fmtc.FMTC(k, view="mixture", random_state=0).fit(X) for k in (2, 3, 4, 5)}
        >>> min(models, key=lambda k: models[k].bic(X))
        4
        """
        check_is_fitted(self)
        common = None if self._shared is None else self._shared.mixture
        if self.view_ != "mixture" or common is None or self._models[self.client_ids_[0]].frame.axes is not None:
            raise InputError(
                "bic needs the likelihood of a mixture over at most 50 columns, which this model has not: fit with "
                'view="mixture", or use advise() or n_clusters="auto"'
            )
        rows = {cid: Xt for cid, (Xt, _) in self._parts(X, clients, reset=False).items()}
        levels = tuple(size for size in self.settings(n_clusters=self._k).levels if size)
        groups: dict[bytes, list[str]] = {}  # silos with one shape; a silo that kept a model of its own has its own
        for cid in rows:
            groups.setdefault(self._models[cid].covariance.tobytes(), []).append(cid)
        free = 0.0
        for cids in groups.values():
            models = [self._models[cid] for cid in cids]
            counts = np.array([self._models[cid].probabilities(rows[cid]).sum(axis=0) for cid in cids])
            free += free_numbers(counts, replace(common, covariance=models[0].covariance), levels)
            shares = {model.shares.tobytes(): np.count_nonzero(model.shares) for model in models}
            free += sum(shares.values()) - len(shares)
        likelihood = sum(self._models[cid].log_likelihood(Xt) for cid, Xt in rows.items())
        return -2 * likelihood + free * float(np.log(sum(Xt.shape[0] for Xt in rows.values())))

    # ------------------------------------------------------------------------------------------ what they are

    def explain(self, X: Any = None, *, clients: Any = None, names: Mapping[int, str] | None = None) -> Explanation:
        """What the clusters are: size, share and the columns that set each apart, in the units of X.

        Every number is a difference between rows: those of a cluster against the other rows of the same silo. Columns
        are counted where X has no names.

        Parameters
        ----------
        X, clients
            As in `predict`; the rows the model was fitted on, or others like them. A model keeps no rows: without X it
            takes those of `fit`, as long as you keep them.
        names : mapping of int to str, optional
            Names that you give to clusters.

        Returns
        -------
        Explanation
            Prints as text and shows as a table in a notebook; `clusters` over all silos, `silos` for each.

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal([150, 1], 4, (30, 2)), rng.normal([129, 1], 4, (30, 2))])
        >>> model = fmtc.FMTC(2, random_state=0).fit(X)
        >>> len(model.explain().clusters)
        2
        """
        rows, places, labels = self._labelled(X, clients)
        return self._explained(rows, {cid: labels[places[cid]] for cid in rows}, names=names)

    def report(
        self,
        path: str | Path,
        X: Any = None,
        *,
        clients: Any = None,
        names: Mapping[int, str] | None = None,
        **options: Any,
    ) -> Path:
        """Write a page for the browser: what the clusters are, each silo's share, maps of the rows, how the run went.

        Needs ``pip install 'fmtc[report]'``. The page shows rows as points: keep it where they may be seen.

        Parameters
        ----------
        path : path
            File to write, such as ``page.html``; replaced if it exists.
        X, clients, names
            As in `explain`.
        **options
            Of `fmtc.report.write_report`: ``gain=True`` also fits again on parts of the rows, to say what joining
            changed.

        Returns
        -------
        Path

        Examples
        --------
        >>> import tempfile, numpy as np, fmtc
        >>> X = np.random.default_rng(0).normal(size=(60, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = fmtc.FMTC(3, random_state=0).fit(X).report(folder + "/page.html")
        ...     page.name
        'page.html'
        """
        from .report import write_report

        return write_report(self, path, X, clients=clients, names=names, **options)

    def _known_rows(self, X: Any, clients: Any) -> tuple[Any, Any]:
        """Rows and clients as they were given or, without any, those of `fit`, if they are still there."""
        check_is_fitted(self)
        if X is not None:
            return X, clients
        if clients is not None:
            raise TypeError("clients= is about the rows of X: give both, or none for the rows of fit")
        kept: Remembered | None = getattr(self, "_fitted_on", None)
        rows = None if kept is None else kept.recall()
        if kept is None or rows is None:
            raise InputError("a model keeps no rows, and those of fit are not there any more: give them as X")
        return rows, kept.clients

    def _labelled(self, X: Any, clients: Any) -> tuple[dict[str, Any], dict[str, Any], Array]:
        """Rows of each client, their places among all, and the clusters of all; without X, of the rows of `fit`."""
        X, clients = self._known_rows(X, clients)
        found = self.predict(X, clients=clients)
        labels = np.concatenate(list(found.values())) if is_mapping(X) else np.asarray(found)
        parts = self._parts(X, clients, reset=False, ensure_all_finite=False)
        return {cid: Xt for cid, (Xt, _) in parts.items()}, {cid: rows for cid, (_, rows) in parts.items()}, labels

    def _explained(
        self,
        rows: Mapping[str, Any],
        labels: Mapping[str, Array],
        *,
        feature_names: Any = None,
        names: Mapping[int, str] | None = None,
        words: Lookup | None = None,
    ) -> Explanation:
        """`explain` of checked rows that have labels. `words` knows the words of columns where rows are texts."""
        is_text = hasattr(self, "text_recipe_")
        if is_text:
            rows = {cid: self._models[cid].weighted(X) for cid, X in rows.items()}
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", None)
        features = Features.of(getattr(self, "schema_", None), feature_names, is_text=is_text, words=words)
        matched = self.solver is None or self.solver.align
        return explain_silos(rows, labels, features, n_clusters=self._k, names=names, matched=matched, held=self.held_)

    @property
    def atlas_(self) -> Atlas:
        """The concepts of all silos, from their models: no row is needed, and only `explain` gives names."""
        return self._atlas()

    def _atlas(self, *, feature_names: Any = None, words: Lookup | None = None) -> Atlas:
        """`atlas_`, with the names of columns, or the words of texts, where they are known."""
        models, matched = self._fitted_models, self.solver is None or self.solver.align
        features = self._features(words, feature_names)
        return draw_models(models, features, self._presence, told=self._told, matched=matched, held=self.held_)

    def explain_row(self, x: Any, *, client: Any = None) -> RowExplanation:
        """Why a row is in its cluster: what each column says for it against the second, and what would change it.

        Parameters
        ----------
        x : array, sparse array or data frame of one row
            With the columns of X; cells may be missing.
        client : str, optional
            The row's client; not needed where the model has one.

        Returns
        -------
        RowExplanation
            Prints as text; `reasons` by their size, `changes` of one column that lead to another cluster.

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal([150, 1], 4, (30, 2)), rng.normal([129, 1], 4, (30, 2))])
        >>> why = fmtc.FMTC(2, random_state=0).fit(X).explain_row([135.0, 1.0])
        >>> why.reasons[0].column, why.changes[0].after > 135
        ('column 0', True)
        """
        check_is_fitted(self)
        if np.ndim(x) == 1 and not hasattr(x, "columns") and not sp.issparse(x):
            x = np.asarray(x)[None]
        parts = self._parts(x, client, reset=False, ensure_all_finite=False)
        (rows,) = (rows for rows, _ in parts.values()) if len(parts) == 1 else (None,)
        if rows is None or rows.shape[0] != 1:
            raise DataError("explain_row takes one row; give the others one by one")
        (cid,) = parts
        return explain_row(self._models[cid], rows, self._features())

    def _features(self, words: Lookup | None = None, feature_names: Any = None) -> Features:
        """What the columns are called."""
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", None)
        is_text = hasattr(self, "text_recipe_") or any(model.holds_words for model in self._models.values())
        return Features.of(getattr(self, "schema_", None), feature_names, is_text=is_text, words=words)

    def _html_repr(self) -> str:
        """What a notebook shows: of a fitted model its silos and clusters, before that scikit-learn's diagram."""
        if not hasattr(self, "_models"):
            return str(estimator_html_repr(self))
        from .report import model_html

        return model_html(self)

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = {"text/html": self._html_repr()} if get_config()["display"] == "diagram" else {}
        return {"text/plain": repr(self), **shown}

    # ------------------------------------------------------------------------------------------------ models

    @property
    def projections_(self) -> dict[str, Array]:
        """W of each client, d x k; the graph view only, and of a private run the clients that stayed alone."""
        found = {cid: W for cid, model in self._fitted_models.items() if (W := getattr(model, "W", None)) is not None}
        if not found:
            raise AttributeError(f"the {self.view_} view has no projections_; it has cluster_centers_")
        return found

    @property
    def cluster_centers_(self) -> dict[str, Array]:
        """Centres of each client: among its normalised projections, k x k; of a mixture, in the units of X, k x d."""
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
            params=self._params(),
            clients=self._models,
            n_features=self.n_features_in_,
            feature_names=getattr(self, "feature_names_in_", None),
            text=getattr(self, "text_recipe_", None),
            n_iter=self.n_iter_,
            converged=self.converged_,
            stopped_because=self.stopped_because_,
            history=[asdict(record) for record in self.history_],
            schema=getattr(self, "schema_", None),
            presence=self._presence,
            told=self._told,
            held=self.held_,
            shared=self._shared,
        )
        return write_model(Path(path), saved, overwrite=overwrite)

    # --------------------------------------------------------------------------------------------- after the run

    def publish(self, path: str | Path, *, names: Mapping[int, str] | None = None, overwrite: bool = False) -> Path:
        """Write a kit with which a newcomer can join later, without sending anything: see `fmtc.join_later`.

        It holds what the silos have in common (mean consensus, common concepts, units of columns), names of columns
        and settings; no silo's own model, and no row. docs/privacy.md says what it can tell.

        Parameters
        ----------
        path : path
            Folder to make; refused if it exists, unless `overwrite`.
        names : mapping of int to str, optional
            Names of clusters, for the newcomer to read.

        Returns
        -------
        Path

        Raises
        ------
        TrustError
            For fewer than three silos: a mean over them would show one.

        Examples
        --------
        >>> import tempfile, numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> model = fmtc.FMTC(2, random_state=0).fit({name: rng.normal(size=(40, 3)) for name in "abc"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in model.publish(folder + "/kit").iterdir())
        ['join.json', 'join.safetensors']
        """
        from .later.models import publish

        check_is_fitted(self)
        return publish(self, path, names, overwrite)

    def partial_fit(self, X: Any, y: Any = None, *, clients: Any = None, keep_last: int | None = None) -> Self:
        """Go on with new rows of some clients: a quarter of the rounds, and clusters keep their numbers.

        A model keeps no rows, so give *all rows of these clients that count now*: the old ones with the new ones
        behind them or, to forget the old ones, the new ones alone. Clients that are not named keep their models. Units
        of columns stay as they are. A model that is not fitted yet is fitted.

        Parameters
        ----------
        X, clients
            As in `predict`; rows of known clients, the oldest first.
        y : ignored
        keep_last : int, optional
            Go on with the last so many rows of each client only: a window that forgets.

        Returns
        -------
        self
            `labels_` are those of the given rows.

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> def month(shift):
        ...     return np.repeat([[0.0, 0.0], [9.0, 9.0]], 40, axis=0) + shift + rng.normal(size=(80, 2))
        >>> silos = {"north": month(0), "south": month(0)}
        >>> model = fmtc.FMTC(2, random_state=0).fit(silos)
        >>> before = model.predict([[0.0, 0.0]], clients="north")
        >>> silos["north"] = np.vstack([silos["north"], month(1)])
        >>> model.partial_fit({"north": silos["north"]}, keep_last=80).predict([[1.0, 1.0]], clients="north") == before
        array([ True])
        """
        from .later.models import update

        if not hasattr(self, "_models"):
            return self.fit(X, y, clients=clients)
        if clients is None:
            refuse_names(y)
        update(self, X, clients, keep_last)
        return self

    def _sent(self) -> list[dict[str, Any]]:
        """What left the clients in the fit, for report.json."""
        advising = ADVICE.phases if hasattr(self, "k_advice_") else ()
        return sent((*COMMON, *view_method(self.view, self.privacy).phases, *advising), self.received_)

    def _params(self) -> dict[str, Any]:
        """Parameters by name, those of the solver under ``solver``: what models and reports keep."""
        privacy = asdict(self.privacy) if isinstance(self.privacy, Privacy) else self.privacy
        solver = asdict((self.solver or Solver()).portable())
        known = {"n_clusters": self.n_clusters_} if isinstance(self.n_clusters, str) else {}
        return self.get_params(deep=False) | {"solver": solver, "privacy": privacy} | known

    def export_onnx(self, client: Any, path: str | Path, *, dtype: Any = np.float32) -> Path:
        """Write one client's model as plain ONNX operators, of either view.

        Input ``X`` (rows x features, categories as codes of `schema_`, NaN where cells are missing); outputs ``label``
        (int64) and ``probability``. Needs ``pip install 'fmtc[onnx]'``.

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

    def __getstate__(self) -> dict[str, Any]:
        """Without references to the rows of `fit`."""
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted_on"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.takes_missing
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.classifier_tags = ClassifierTags()  # estimator checks look here for what predict_proba returns
        return tags

    def _output_is_framed(self) -> bool:
        here = getattr(self, "_sklearn_output_config", {})
        return here.get("transform", get_config()["transform_output"]) != "default"

    @property
    def _scales(self) -> bool:
        """Whether the columns were brought to a common spread."""
        return any(model.rescales for model in self._models.values())

    @property
    def _k(self) -> int:
        return next(iter(self._models.values())).k

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


def federate(
    X: Any,
    model: FMTC,
    *,
    clients: Any = None,
    min_clients: int | None = None,
    deadline: float = 600.0,
    wait: float = 60.0,
    listen: Callable[[Mapping[str, Any]], None] = lambda event: None,
) -> FMTC:
    """Fit by a federation of processes on this machine; the result is that of `FMTC.fit`, bit for bit.

    Each client's rows are written to a folder of its own, which only this user can read, and are read there by the
    client's own process. The processes talk over mutual TLS on the loopback interface, with NVIDIA FLARE (``pip install
    'fmtc[federation]'``). Nothing is left when they end.

    Parameters
    ----------
    X, clients
        As in `FMTC.fit`: a mapping of client to rows, or rows and the client of each. Arrays may be sparse.
    model : FMTC
        What to fit; it is not changed. `n_jobs` has no effect: each client has a process of its own.
    min_clients : int, optional
        Continue while this many clients answer; all of them by default.
    deadline : float
        Seconds within which an answer must come.
    wait : float
        Seconds to wait for processes that are not there.
    listen : callable
        Gets every event of the run, as a dict with at least ``event`` and ``time``.

    Returns
    -------
    FMTC
        A fitted copy of `model`.

    Examples
    --------
    >>> import numpy as np
    >>> from fmtc import FMTC, federate
    >>> rng = np.random.default_rng(0)
    >>> silos = {"north": rng.normal(size=(40, 3)), "south": rng.normal(size=(30, 3))}
    >>> model = federate(silos, FMTC(n_clusters=2, random_state=0))  # doctest: +SKIP
    >>> model.labels_.shape  # doctest: +SKIP
    (70,)
    """
    from .runtime.flare import local
    from .runtime.kitclient import ClientSource
    from .tables import Reading

    model = clone(model)
    if model.device != HOST:
        raise InputError(f"a federation of processes computes on the CPU, and the model asks for {model.device!r}")
    parts = model._parts(X, clients, reset=True)
    rows = {cid: Xt for cid, (Xt, _) in parts.items()}
    weights = model._weights(parts)
    if not isinstance(model.n_clusters, str):
        model._settled(rows)
    if min_clients is not None and not 1 <= min_clients <= len(parts):
        raise InputError(f"min_clients must lie between 1 and the {len(parts)} clients there are, got {min_clients}")
    schema = getattr(model, "schema_", None)
    reading = Reading(schema=None if schema is None or schema.is_plain else schema, missing="em")
    sources = [ClientSource(cid, "", reading) for cid in rows]
    how: dict[str, Any] = {"min_clients": min_clients, "deadline": deadline, "wait": wait, "listen": listen}
    with local.LocalFederation(sources, rows=rows) as federation:
        lines, before = advised(model, federation, **how)
        outcome = federation.run(model.settings(), weights=weights, **how)
    for note in dict.fromkeys(note for kept in outcome.kept.values() for note in kept.notes):
        warnings.warn(note, stacklevel=2)
    places = None if outcome.missing else {cid: rows for cid, (_, rows) in parts.items()}
    model._adopt(outcome, {cid: kept.client for cid, kept in outcome.kept.items()}, places)
    model.received_ = [*before, *model.received_]
    model._ledgers = {cid: MemoryLedger([*lines.get(cid, ()), *own]) for cid, own in outcome.ledgers.items()}
    return model


def advised(model: FMTC, federation: Any, **how: Any) -> tuple[dict[str, list[dict[str, Any]]], list[Total]]:
    """Give a model the advice of a federation's clients, where its number of clusters is to be found: a run of its own.

    Parameters
    ----------
    model : FMTC
    federation : LocalFederation
    **how
        Passed to the federation's `run`.

    Returns
    -------
    ledgers : dict of client id to list of dict
        Lines about what left each client for the advice; empty where none was needed.
    received : list of Total
    """
    if not isinstance(model.n_clusters, str):
        return {}, []
    settings = advice_settings(model.settings(n_clusters=2), range_of(model.n_clusters))
    outcome = federation.run(settings, method_name=ADVICE.name, **how)
    model.k_advice_ = advice_of(outcome.common, outcome.client_ids)
    warn_of_advice(model.k_advice_)
    return dict(outcome.ledgers), list(outcome.received)


def warn_of_advice(advice: Advice) -> None:
    """Say which number of clusters is fitted."""
    warnings.warn(f"the number of clusters is not clear: {advice.text}", UserWarning, stacklevel=3)


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
        Folder of the model, or of a run of `fmtc fit`, which has it in ``model/``.

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
    path = Path(path)
    if not (path / MODEL_FILE).exists() and (path / "model" / MODEL_FILE).exists():
        path /= "model"
    saved = read_model(path)
    model = read_settings(path / MODEL_FILE, saved.params)
    history = tuple(RoundRecord.from_dict(line) for line in saved.history)
    result = RunRecord(history, saved.converged, saved.stopped_because)
    model._restore(saved.clients, result, saved.n_features, saved.n_iter)
    model._presence, model._told = dict(saved.presence), {cid: list(said) for cid, said in saved.told.items()}
    model.held_ = list(saved.held)
    model._shared = saved.shared
    if saved.feature_names is not None:
        model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    if saved.schema is not None:
        model.schema_ = saved.schema
    if saved.text is not None:
        model.text_recipe_ = saved.text
    return model


def load_atlas(path: str | Path) -> Atlas:
    """Read the concepts of a run, by the names that its clusters have everywhere else. No row is needed.

    Parameters
    ----------
    path : path
        Folder of a run of `fmtc fit`, `fmtc join` or `fmtc coordinate`, or of a model.

    Returns
    -------
    Atlas
        As the run has kept it; of a model, or a run of an older version, made of the model.

    Raises
    ------
    FileError
        If a file is missing or damaged, or the coordinator of an older version has kept none.

    Examples
    --------
    >>> import tempfile, numpy as np, fmtc
    >>> from fmtc.estimator import load_atlas
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fmtc.FMTC(3, random_state=0).fit(X).save(folder + "/model")
    ...     len(load_atlas(path).clusters)
    3
    """
    folder = Path(path)
    atlas = read_atlas(folder)
    if atlas is None and (folder / "consensus.safetensors").is_file():
        raise FileError(f"{folder} has no atlas: it was written by an older version of fmtc, or of a run without one")
    if atlas is None:
        model = load(model_folder(folder))
        if (schema := schema_of(model, folder)) is not None:
            model.schema_ = schema
        atlas = model.atlas_
    kept = read_explanation(folder)
    explained = kept.clusters if kept else ()
    return atlas.renamed({one.cluster: one.name for one in explained})


def read_settings(file: Path, settings: Mapping[str, Any]) -> FMTC:
    """An estimator with the settings that a file holds, or a `FileError` if `fit` would reject them."""
    try:
        settings = dict(settings)
        own = settings.pop("own_clusters", None)  # in settings of a run, in place of `n_concepts`
        if own is not None:
            settings |= {"n_clusters": own or settings["n_clusters"], "n_concepts": settings["n_clusters"]}
        solver = settings.get("solver")
        privacy = settings.get("privacy")
        privacy = Privacy(**privacy) if isinstance(privacy, Mapping) else privacy
        model = FMTC(**{**settings, "solver": None if solver is None else Solver(**solver), "privacy": privacy})
        model.settings()
    except (TypeError, ValueError) as error:
        raise FileError(f"{file} is damaged: {error}") from None
    return model


def _warn_of_strangers(sizes: Mapping[str, Array]) -> None:
    """One warning for silos that have no concept in common with any other."""
    has = {cid: counts > 0 for cid, counts in sizes.items()}
    total = np.sum(list(has.values()), axis=0)
    alone = [cid for cid, mine in has.items() if not (mine & (total > 1)).any()] if len(has) > 1 else []
    if alone:
        warnings.warn(
            f"{', '.join(map(repr, alone[:5]))} shares no concept with any other silo: it learnt nothing from them, "
            "and its cluster numbers are its own. Leave it out, or ask for fewer concepts.",
            UserWarning,
            stacklevel=4,
        )


def _warn_of_missed_parts(silos: list[str]) -> None:
    """One warning for all silos whose labels do not follow clear parts of their graph."""
    if not silos:
        return
    shown = ", ".join(map(repr, silos[:5])) + (f" and {len(silos) - 5} more" if len(silos) > 5 else "")
    warnings.warn(
        f"the labels of {shown} do not follow the neighbour graph: it falls into clear parts, but labels are a linear "
        'function of the columns, which cannot tell these parts from each other. Try view="auto", '
        'Solver(lift=True) with scale="auto", or view="mixture".',
        UserWarning,
        stacklevel=4,
    )


def _refuse_blind_search(caller: FrameType) -> None:
    """Raise `DataError` where a search of scikit-learn passes `clients` to `fit` and will score without them.

    Otherwise every `score` fails, which the search reports as NaN, and then names the best of them.
    """
    about = caller.f_locals if caller.f_code.co_name == "_fit_and_score" else {}
    if type(about.get("scorer")).__name__ == "_PassthroughScorer" and not about.get("score_params"):
        raise DataError(
            "this search passes clients= to fit but not to score: call "
            "sklearn.set_config(enable_metadata_routing=True) first, or give X a column with the silo of each row, and "
            "its name as clients="
        )


def _print_round(record: RoundRecord) -> None:
    print(f"[FMTC] round {record.round_no}: objective {record.objective:.6g}, {record.standing}", file=sys.stderr)


__all__ = ["FMTC", "estimate_memory", "federate", "load", "load_atlas"]
