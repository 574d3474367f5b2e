"""FMTC, the scikit-learn face: checks input, runs, and answers with what a run came to."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import ClassifierTags, check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from .advice import Advice, ask_locally, check_search, number_of_clusters
from .artifacts.models import write_kit, write_model
from .confidence import LEVEL, Drift, silo_drift, together
from .describe import Atlas, Explanation, Features, RowExplanation
from .describe.atlas import draw_models, presence_of
from .describe.clusters import explain_silos
from .describe.features import Lookup
from .describe.reasons import explain_row
from .describe.words import empty_clusters_sentence, held_words, missed_words, own_words, strangers_sentence
from .errors import DataError, InputError, NotFiniteError, RowsWarning
from .kernels.graph import association, knn_affinity
from .kernels.scaling import expanded_width
from .linalg.arrays import HOST, check_device
from .linalg.threads import one_thread
from .models import ClientModel, Presence, kind_of
from .models.shared import Shared
from .protocol.advice import METHOD as ADVICE
from .protocol.advice import advice_settings, range_of
from .protocol.base import sent
from .protocol.home import FEDERATED, TooFewError, calibrated
from .protocol.method import COMMON, ClientResult, view_method
from .protocol.outcome import shared_by
from .protocol.state import checked_weights
from .rows import Remembered, SilosMixin, is_mapping, refuse_blind_search, refuse_names, unchanged_if_it_fails
from .runtime.driver import Callback, RoundRecord, RunRecord, run
from .runtime.local import LocalTransport
from .settings import Graph, Mixture, Privacy, Settings, by_view, check_number, finite, flat

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fitted `FMTC` answers with: a model of each silo, and what is known of it. It holds no row.

    Files keep the first four fields; the others are known in the process of the fit only.
    """

    models: Mapping[str, ClientModel]
    presence: Mapping[str, Presence] = field(default_factory=dict)  # share of each cluster in the rows of each silo
    told: Mapping[str, list[tuple[float, str]]] = field(default_factory=dict)  # a federation's cosines and flags
    shared: Shared | None = None  # what all silos have in common, where the server's end of the run is known
    sizes: Mapping[str, Array] = field(default_factory=dict)  # rows in each cluster of each silo
    homes: Mapping[str, Any] = field(default_factory=dict)  # what each silo knows of the others, for `calibrate`
    seen: Remembered | None = None  # the rows of `fit`, while somebody else keeps them

    @classmethod
    def of(cls, clients: Mapping[str, ClientResult], shared: Shared | None, *, private: bool) -> Self:
        """Of what each silo came to; a private run promises that nothing but its sums is kept of rows."""
        k = next(iter(clients.values())).model.k
        return cls(
            {cid: one.model for cid, one in clients.items()},
            presence={} if private else {cid: presence_of(one.labels, k) for cid, one in clients.items()},
            shared=shared,
            sizes={cid: np.bincount(one.labels, minlength=k) for cid, one in clients.items()},
            homes={cid: one.home for cid, one in clients.items()},
        )


class FMTC(SilosMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Federated multi-task clustering: one model per silo, learnt together.

    Two views of a silo's rows, one estimator. The *mixture* view is for tables: the rows x of silo t are draws from
    ``Σ_j π_tj N(x; μ_tj, Σ)``, with shares and means of its own and one shape Σ for all; means are shrunk towards those
    of the other silos as far as silos are alike. The *graph* view, the paper's method, is for texts, pictures and
    other rows with many columns: silo t solves ``min Tr(FᵀLF) + alpha ||F - XW||²`` over FᵀF = I for an embedding F
    of its neighbour graph and a projection W of its columns. Projections of all silos are shrunk towards a common
    low-rank structure by ADMM, and clusters are found among the rows of XW. By default the data decide between the
    two. With one silo, they are a Gaussian mixture and spectral clustering that can predict.

    Parameters
    ----------
    n_clusters : int, "auto" or a range such as "3..12", default=8
        Clusters of the federation; each has one number everywhere. "auto", or a range, first asks the rows, as
        `fmtc.advise` does, and fits the number that it advises, with a warning that names it. To compare numbers, use
        `fmtc.advice.bic` of the mixture view, not `score`.
    clusters_per_silo : int, mapping of silo to int or "auto", default=None
        Says that silos may have fewer clusters than the federation: at most this many, for all silos or by silo; "auto"
        names no limit. The graph view matches the silos' clusters before it couples them; in the mixture view a silo
        drops clusters that too few of its rows support, whatever the number. None: every silo has all clusters. With a
        mapping and ``n_clusters="auto"``, the number of the federation is proposed from the silos' clusters, with a
        warning.
    view : {"auto", "graph", "mixture"}, default="auto"
        "auto" decides without labels. Tables of at most 50 numbers: the mixture, unless rows of half of the silos
        fall into parts that no ellipse follows, such as rings. Many columns: the graph, unless the mixture keeps
        clearly more neighbours together. `view_` and `view_reason_` say which view was chosen, and why.
    scale : {"auto", "none", "silo", "global", "tfidf"}, default="auto"
        Give each column mean 0 and standard deviation 1 first: "silo" among the rows of each silo, "global" among
        those of all, from sums that the silos send. "auto" is "global" for dense rows and "none" for sparse rows, for
        rows of unit length, and for counts and ink: more than 50 columns, a fifth of all cells 0, none negative. With
        "global", columns of sparse data are divided by their root mean square and not shifted. "tfidf" is for counts of
        words: columns get the weight of rare words, found over all silos, and rows unit length. `predict` expects
        unscaled rows.
    graph : Graph, default=None
        Settings of the graph view, see `Graph`; None takes its defaults. ``set_params(graph__beta=0.3)`` works.
    mixture : Mixture, default=None
        Settings of the mixture view, see `Mixture`; None takes its defaults.
    privacy : None, "sums" or Privacy, default=None
        What the server sees. None: every silo's answers. "sums": only their sums over all silos, of which there
        must be at least three; masks that cancel in the sum hide the rest. A `Privacy`: these sums hold noise as well,
        so that no record shows; clusters are then found by a method of its own. With "sums", the graph view takes
        ``coupling="subspace"`` in place of "tensor", which needs more than sums. docs/privacy.md says what each keeps
        from whom.
    max_iter : int, default=25
        Largest number of rounds of the graph view. The mixture's are smaller: it may take four times as many.
    tol : float, default=1e-3
        The graph view stops when the relative primal and dual residuals are both below, the mixture when the
        log-likelihood of a row changes by less than a thousandth of it, relative to its size; 0 runs all rounds.
    random_state : int, RandomState instance or None, default=None
        Decides starts of the mixture, of the eigen-solver and of k-means. The same int gives the same bytes, whatever
        `n_jobs`.
    n_jobs : int, default=None
        Silos worked on at the same time. None means 1, -1 all cores. Cores that silos leave help with the search
        for neighbours and, from 30,000 rows on, with products. Results do not depend on it.
    device : str, default="cpu"
        Where silos compute: "cpu", or a device of PyTorch such as "cuda" or "cuda:1" (``pip install 'fmtc[gpu]'``),
        for dense rows. Models and predictions are those of "cpu", except for rows half way between two clusters.
    verbose : int, default=0
        Above 0, one line per round on standard error.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. The same number means the same cluster in all silos (with ``graph.align``);
        number 0 is large in most of them. A silo may have no row in a cluster that others have.
    n_clusters_ : int
        Clusters of the federation.
    silos_ : list of str
        Names of the silos, sorted.
    view_ : {"graph", "mixture", "anchors"}
        The view of the model.
    view_reason_ : str
        Why `view="auto"` chose it, in words; empty where it did not choose, or the model was loaded.
    cluster_centers_ : dict of str to ndarray of shape (n_clusters, n_features) or (n_clusters, n_clusters)
        Mixture view: means of each silo, in the units of X; numbers first, then the shares of each level of each
        category. Graph view: centres among the normalised projections.
    atlas_ : Atlas
        The clusters: name, features, share in each silo, and whether silos agree on them. Made of the models, without a
        row; also of a model that was loaded. Reading it computes it.
    n_iter_ : int
        Rounds done in the view that was chosen.
    converged_ : bool
        Whether the rounds ended by `tol`; None where that is not known.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only where the input had column names.
    schema_ : Schema
        Only where the input was a data frame: which columns are numbers and which categories, with their levels.
    kappa_ : ndarray of shape (n_clusters,)
        Pooling strength of each cluster: how many rows of its own a silo needs before they outweigh what the others
        know. From 0.1, silos that have little in common, to 1000, silos that share the cluster; infinite where all
        silos have the same means, as for texts. Not in a model that was loaded, nor with ``graph.final="kmeans"``.
    projections_ : dict of str to ndarray of shape (n_features, n_clusters)
        Graph view only. W of each silo, for columns in the units of X. With "tfidf", for the kept columns only; where
        columns are lifted, for the lifted ones.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Graph view only. F of the training rows; orthonormal columns within each silo, 0 for clusters that it lacks.
    consensus_ : ndarray of shape (n_features, n_clusters, n_silos)
        Graph view only. Z, the low-rank copy of the projections, for columns in the units that `scale` gives them.
    run_ : RunRecord
        How the run went: rounds, what was received, why it stopped, who influenced whom, who was held.

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
    >>> rows = {"north": silo(n=(40, 20), shift=0.0), "south": silo(n=(20, 40), shift=5.0)}
    >>> rows["south"][3, 1] = np.nan
    >>> model = FMTC(n_clusters=2, random_state=0).fit(rows)
    >>> model.view_
    'mixture'
    >>> same = model.predict([[0.0, 4.0, 0.0], [5.0, 9.0, np.nan]], silos=["north", "south"])
    >>> bool(same[0] == same[1])
    True
    """

    takes_missing = True
    # with metadata routing, scikit-learn's searches and pipelines pass `silos` along unasked
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"silos": True}
    __metadata_request__score = __metadata_request__predict = __metadata_request__predict_proba = (
        __metadata_request__fit
    )
    __metadata_request__transform = __metadata_request__fit
    _fitted: Fitted
    run_: RunRecord

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        clusters_per_silo: Any = None,
        view: str = "auto",
        scale: str = "auto",
        graph: Graph | None = None,
        mixture: Mixture | None = None,
        privacy: Any = None,
        max_iter: int = 25,
        tol: float = 1e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = HOST,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.clusters_per_silo = clusters_per_silo
        self.view = view
        self.scale = scale
        self.graph = graph
        self.mixture = mixture
        self.privacy = privacy
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a view as ``graph__name`` or ``mixture__name``."""
        for of, kind in (("graph", Graph), ("mixture", Mixture)):
            if getattr(self, of) is None and of not in params and any(name.startswith(f"{of}__") for name in params):
                setattr(self, of, kind())
        return super().set_params(**params)

    @classmethod
    def as_published(
        cls, n_clusters: int = 8, *, alpha: float = 1.0, beta: float = 1.0, rho: float = 1.0, **others: Any
    ) -> Self:
        """The algorithm as printed: absolute alpha, beta and rho, no scaling, centring or alignment, labels from F.

        Where the paper gives no value (step size, neighbours, inner steps, p) the defaults here apply. Any parameter of
        the constructor or of `Graph` may be given. docs/paper.md compares the two.

        Examples
        --------
        >>> from fmtc import FMTC
        >>> FMTC.as_published(4, alpha=10, beta=0.1, rho=1).graph.align
        False
        """
        printed: dict[str, Any] = {
            "view": "graph", "coupling": "tensor", "scale": "none", "lift": False, "final": "kmeans",
            "align": False, "center_features": False, "labels_from": "embedding", "n_neighbors": 10,
            "nonmutual_weight": 1.0, "accelerate": False, "n_inner": 5, "max_iter": 50, "contain": False, "own": False,
        }  # fmt: skip
        return cls(n_clusters, **by_view({"alpha": alpha, "beta": beta, "rho": rho, **printed, **others}))

    # ---------------------------------------------------------------------------------------------- fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        silos: Any = None,
        silo_weights: Mapping[Any, float] | None = None,
        callbacks: Iterable[Callback] = (),
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn one model per silo.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n_samples, n_features), or mapping of silo to such
            With a mapping, rows are counted silo after silo in its order.
        y : ignored
        silos : array-like of shape (n_samples,), or name of a column of X, optional
            Name of the silo of each row. A column is set aside, in later calls as well. Left out, all rows are one
            silo.
        silo_weights : mapping of silo to float, optional
            How much each silo counts, relative to the others. Graph view: the paper's omega, its own data against the
            consensus. Mixture: how often each of its rows is counted in what all silos have in common. By default all
            silos of the graph view, and all rows of the mixture, count alike.
        callbacks : iterable of callables, optional
            Each is called with a `RoundRecord` after every round.
        checkpoint : path, optional
            Folder that always holds the last completed round.
        resume : bool, default=False
            Continue from the checkpoint if it holds a round; the result is that of the undisturbed run, bit for bit.

        Returns
        -------
        self
        """
        with unchanged_if_it_fails(self):
            if silos is None:
                refuse_names(y)
            parts = self._parts(X, silos, reset=True)
            if silos is not None and not isinstance(silos, str) and len(parts) > 1:
                refuse_blind_search(sys._getframe(1))
            self.__dict__.pop("text_recipe_", None)  # of rows it was fitted on before
            check_device(self.device)
            rows = {cid: Xt for cid, (Xt, _) in parts.items()}
            self._check_names(rows)
            k, asked = number_of_clusters(self, rows, partial(ask_locally, self, rows))
            settings = self._settings(k)
            self._refuse_rows(rows, settings)
            method = view_method(settings.view, settings.privacy)
            ledgers = None if asked is None else asked.ledgers
            transport = LocalTransport(rows, settings, self.n_jobs, method=method, device=self.device, ledgers=ledgers)
            result = run(
                transport,
                settings,
                method=method,
                weights=checked_weights(silo_weights, rows),
                callbacks=[*callbacks, *([_print_round] if self.verbose else [])],
                checkpoint=checkpoint,
                resume=resume,
            )
            result = replace(result, shared=shared_by(result.server, settings), ledgers=transport.ledgers)
            self._adopt(result.after(asked), transport.results(), {cid: places for cid, (_, places) in parts.items()})
            self._fitted = replace(self._fitted, seen=Remembered.of(X, silos))
        return self

    def _check_names(self, silos: Iterable[str]) -> None:
        """Raise `InputError` where numbers of clusters are given by silo, and not for these silos."""
        if isinstance(self.clusters_per_silo, Mapping):
            given, there = set(map(str, self.clusters_per_silo)), set(silos)
            unknown, missing = sorted(given - there), sorted(there - given)
            if unknown or missing:
                raise InputError(
                    f"clusters_per_silo must name each silo once; missing: {missing or 'none'}, unknown: "
                    f"{unknown or 'none'}"
                )

    def _refuse_rows(self, rows: Mapping[str, Any], settings: Settings) -> None:
        """Refuse rows that sums or noise cannot take, before any silo is asked."""
        if settings.privacy == "sums":
            from .protocol.sums.view import refuse_large

            known = getattr(self, "schema_", None)
            refuse_large(rows, getattr(self, "feature_names_in_", None) if known is None else known.names)
        if isinstance(settings.privacy, Privacy) and settings.privacy.rows is not None:
            from .protocol.private.view import gate

            gate(settings, settings.privacy.rows, expanded_width(settings.levels, self.n_features_in_))

    def _settings(self, n_clusters: int | None = None) -> Settings:
        """The settings of a run, checked; the seed is drawn from `random_state`.

        `n_clusters` takes the place of the parameter; where that is "auto" or a range, it is that of the last fit.
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        values = flat(self.view, self.graph, self.mixture)
        values |= {name: getattr(self, name) for name in ("view", "scale", "privacy", "max_iter", "tol")}
        if isinstance(self.n_clusters, str):
            check_search(self.n_clusters, self.privacy)
        if self.privacy == "sums" and values["coupling"] in ("auto", "tensor") and values["rho"] is None:
            values["coupling"] = "subspace"  # the tensor needs every single projection
        schema = getattr(self, "schema_", None)
        levels = () if schema is None or schema.is_plain else schema.levels
        k: Any = n_clusters
        if k is None:
            k = self.n_clusters_ if isinstance(self.n_clusters, str) else self.n_clusters
        return Settings(**values, n_clusters=k, clusters_per_silo=self._own_clusters(k), levels=levels, seed=seed)

    def _own_clusters(self, k: int) -> Any:
        """Clusters of a silo where it may have fewer than the federation: an int, or by silo."""
        own, is_found = self.clusters_per_silo, isinstance(self.n_clusters, str)

        def at_most(value: Any) -> Any:  # a number that is found may be smaller
            return min(value, k) if is_found and isinstance(value, Integral) else value

        if isinstance(own, str) and own == "auto":
            return k
        if not isinstance(own, Mapping):
            return at_most(own)
        if not own:
            raise InputError("clusters_per_silo is a mapping without a silo; give one number, or one for each silo")
        return {str(cid): at_most(value) for cid, value in own.items()}

    def _adopt(
        self,
        result: RunRecord,
        clients: Mapping[str, ClientResult],
        places: Mapping[str, Any] | None = None,
        *,
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
        n_iter : int, optional
            Rounds done, where the history is not known here.
        """
        clients = dict(clients)
        if places is None:
            ends = np.cumsum([0, *(len(one.labels) for one in clients.values())])
            places = {cid: slice(ends[t], ends[t + 1]) for t, cid in enumerate(clients)}
        ordered = {cid: clients[cid] for cid in sorted(clients)}
        self._fitted = Fitted.of(ordered, result.shared, private=isinstance(self.privacy, Privacy))
        measured = {cid: one.agreement for cid, one in ordered.items() if one.agreement is not None}
        if self.view_ != "graph":
            measured = {}
        choices = {cid: one.choice or FEDERATED for cid, one in ordered.items()}
        self._remember(result, n_iter, choices=choices, agreement=measured)
        self._warn_of_run([cid for cid in measured if ordered[cid].misses])
        self.labels_ = _by_place({cid: one.labels for cid, one in clients.items()}, places)
        self.__dict__.pop("embedding_", None)
        if all(one.embedding is not None for one in clients.values()):
            self.embedding_ = _by_place({cid: one.embedding for cid, one in clients.items()}, places)
        return self

    def _remember(self, result: RunRecord, n_iter: int | None = None, **more: Any) -> None:
        """Keep how a run went, without the server's last state."""
        promise = None
        if isinstance(self.privacy, Privacy):
            from .protocol.private.view import promise as promised

            promise = promised(self._settings(self.n_clusters_), len(result.client_ids) or None, self.n_features_in_)
        self.run_ = replace(result, server=None, kept={}, late={}, promise=promise, **more)
        self.n_iter_ = len(self.run_.rounds) if n_iter is None else n_iter

    def _warn_of_run(self, missed: list[str]) -> None:
        """Warn of silos that were held, share no cluster or miss clear parts, and of empty clusters."""
        held, sizes, said = list(self.run_.held), self._fitted.sizes, []
        if missed:
            said.append(missed_words(missed))
        if held:
            said.append(held_words(held, self.run_.choices))
        if self.clusters_per_silo is not None and (strange := strangers_sentence(sizes)):
            said.append(strange)
        for sentence in said:
            warnings.warn(sentence, UserWarning, stacklevel=4)
        if self.run_.client_ids and (empty := empty_clusters_sentence(sizes.values())):
            warnings.warn(empty, RowsWarning, stacklevel=4)  # of all silos: that one lacks a cluster is no news

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return the cluster of each row; a mapping of silos gives a mapping of labels.

        Takes the parameters of `fit`.
        """
        self.fit(X, y, **fit_params)
        return self._as_given(X, self.labels_)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit and return `transform` of the same rows. Takes the parameters of `fit`."""
        return self.fit(X, **fit_params).transform(X, silos=fit_params.get("silos"))

    # --------------------------------------------------------------------------------------------- new rows

    def predict(self, X: Any, *, silos: Any = None, abstain: float | None = None) -> Any:
        """Cluster of each row, by the model of the row's silo.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n_samples, n_features), or mapping of silo to such
        silos : array-like of shape (n_samples,), or one name for all rows
            Optional where the model has one silo, or X the column of silos that `fit` was given.
        abstain : float, optional
            Share of rows to give no cluster: -1 where `confidence` is below. It holds for rows like those of fit; of
            others, more are left out. Needs `calibrate`.

        Returns
        -------
        ndarray of int of shape (n_samples,), or mapping of silo to such
        """
        share = 0.0 if abstain is None else abstain
        check_number("abstain", share, Real, "None or a share from 0 to below 1", lambda v: 0 <= v < 1)
        if not share:
            return self._each(X, silos, lambda Xt, model: model.assign(Xt))
        return self._each(X, silos, lambda Xt, model: np.where(model.confidence(Xt) < share, -1, model.assign(Xt)))

    def confidence(self, X: Any, *, silos: Any = None) -> Any:
        """How certain the cluster of each row is: the share of the silo's own rows that are less certain.

        A row is in doubt where two clusters claim it, and where it is unlike all of them. The silo's rows are scored by
        models that have not seen them, so that a tenth of new rows like them lies below 0.1. Takes the parameters of
        `predict`. Needs `calibrate`.

        Returns
        -------
        ndarray of shape (n_samples,), or mapping of silo to such

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (60, 2))])
        >>> model = fmtc.FMTC(2, random_state=0).fit(X).calibrate()
        >>> sure, unsure = model.confidence([[0.0, 0.0], [3.0, 3.0]])
        >>> bool(sure > 0.5), bool(unsure < 0.1)
        (True, True)
        >>> int(model.predict([[3.0, 3.0]], abstain=0.1)[0])
        -1
        """
        return self._each(X, silos, lambda Xt, model: model.confidence(Xt))

    def drift(self, X: Any, *, silos: Any = None, level: float = LEVEL) -> Drift:
        """Test whether new rows are still like those that the models were made for, for each silo and for all.

        Drift is reported when new rows score lower than held-out training rows: a group that was not there, another
        machine. The test compares ranks. One p-value of each silo makes that of all (Stouffer), which sees a change
        that reaches several silos much sooner than one silo can. Needs `calibrate`.

        Parameters
        ----------
        X, silos
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
        >>> model = fmtc.FMTC(2, random_state=0).fit(X).calibrate()
        >>> print(model.drift(rng.normal(3, 1, (50, 2))))
        all: drift (p = below 0.0001; 98 % of 50 rows fit badly, 10 % expected)
        """
        check_is_fitted(self)
        check_number("level", level, Real, "a number between 0 and 1", lambda v: 0 < v < 1)
        parts = self._parts(X, silos, reset=False, ensure_all_finite="allow-nan")
        return together([silo_drift(cid, Xt, self._models[cid], level) for cid, (Xt, _) in parts.items()], level)

    def calibrate(self, X: Any = None, *, silos: Any = None) -> Self:
        """Learn what scores of new rows are worth, for `confidence`, ``predict(abstain=)`` and `drift`.

        Each silo fits its model again to four fifths of its rows, with what it knows from the others as it is, and
        scores the other rows: five times, or fewer where it has thousands of rows. Takes up to half as long as
        `fit`. A model that is saved keeps it.

        Parameters
        ----------
        X, silos
            The rows of `fit`; without X, those of `fit` as long as you keep them. A silo of fewer than 20 rows, or of
            few for its clusters, is left out with a warning.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, silos = self._known_rows(X, silos)
        models = dict(self._models)
        for cid, (Xt, _) in self._parts(X, silos, reset=False).items():
            try:
                models[cid] = self._calibrated(cid, Xt)
            except TooFewError as error:
                warnings.warn(str(error), UserWarning, stacklevel=2)
        self._fitted = replace(self._fitted, models=models)
        return self

    def _calibrated(self, cid: str, X: Any) -> ClientModel:
        """The model of one silo, calibrated with its rows of fit."""
        model, home = self._models[cid], self._fitted.homes.get(cid)
        if home is None:
            model.calibrated()  # says that it cannot be, unless it was
            return model
        n = int(self._fitted.sizes[cid].sum())
        if X.shape[0] != n:
            raise DataError(f"silo {cid!r} was fitted on {n} rows, got {X.shape[0]}: calibrate takes the rows of fit")
        if len(self.silos_) == 1:  # nothing came from others
            home = replace(home, common=None)
        with one_thread("blas"):
            found = calibrated(home, X, model)
        return replace(model, calibration=found)  # type: ignore[type-var]

    def predict_proba(self, X: Any, *, silos: Any = None) -> Any:
        """Probability of each cluster: its share times its density at the row, relative to all clusters.

        These are posterior probabilities of the mixture, over columns or over projections. With ``graph.final=
        "kmeans"``, as if clusters were equally likely round Gaussians in the projection. Rows sum to one and are
        largest where `predict` says; those of clusters that a silo lacks are 0. They compare clusters with each other
        only: a row far from all of them is nearly 1 in the nearest one, and `outliers` finds it. Takes the parameters
        of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), or mapping of silo to such
        """
        return self._each(X, silos, lambda Xt, model: model.probabilities(Xt))

    def outliers(self, X: Any, *, silos: Any = None, level: float = 1e-3) -> Any:
        """Whether each row is further from all clusters than all but a share `level` of the rows of a Gaussian cluster.

        Takes the parameters of `predict`; the mixture view only.

        Returns
        -------
        ndarray of bool of shape (n_samples,), or mapping of silo to such
        """
        check_is_fitted(self)
        if self.view_ != "mixture":
            raise InputError('outliers needs the mixture view: fit with view="mixture"')
        check_number("level", level, Real, "a number between 0 and 1", lambda v: 0 < v < 1)
        return self._each(X, silos, lambda Xt, model: model.outliers(Xt, level))

    def transform(self, X: Any, *, silos: Any = None) -> Any:
        """Normalised projection of each row; in the mixture view, its distance to each cluster in units of their shape.

        Takes the parameters of `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), or mapping of silo to such
        """
        if is_mapping(X) and self._output_is_framed():
            raise TypeError("set_output frames the rows of one silo; call transform for each: X[name], silos=name")
        return self._each(X, silos, lambda Xt, model: model.transform(Xt))

    def score(self, X: Any, y: Any = None, *, silos: Any = None) -> float:
        """How well the predicted clusters keep neighbours together; needs no labels, higher is better.

        On a neighbour graph of the given rows of each silo, scaled as `scale` says: the share of a cluster's edge
        weight that stays inside it, averaged over clusters (1 - Ncut/k), then over silos. Between 0 and 1; an empty
        cluster counts as 0.

        Not a way to choose `n_clusters`: it falls with their number, so that a grid search over it picks the fewest.
        `fmtc.advice.bic` of the mixture view and `fmtc.advise` are.

        Parameters
        ----------
        X, silos
            As in `predict`; at least two rows of each silo.
        y : ignored
        """
        check_is_fitted(self)
        shares = []
        for cid, (Xt, _) in self._parts(X, silos, reset=False).items():
            if Xt.shape[0] < 2:
                raise DataError(f"silo {cid!r} has {Xt.shape[0]} row; score needs at least 2 rows of each silo")
            shares.append(association(self._neighbors(cid, Xt), self._models[cid].assign(Xt), self.n_clusters_))
        return float(np.mean(shares))

    def _neighbors(self, cid: str, X: Any) -> sp.csr_array:
        """Affinities of neighbours among rows of a silo, in the units that its model looks at."""
        graph, X = self.graph or Graph(), self._models[cid].scaled(X)
        return knn_affinity(X, graph.n_neighbors, graph.bandwidth, nonmutual_weight=graph.nonmutual_weight)

    # ------------------------------------------------------------------------------------------ what they are

    def explain(
        self, X: Any = None, *, silos: Any = None, names: Mapping[int, str] | None = None, row: Any = None
    ) -> Explanation | RowExplanation:
        """What the clusters are: size, share and the columns that set each apart, in the units of X.

        Every number is a difference between rows: those of a cluster compared with the other rows of the same silo.
        Columns are counted where X has no names. With `row`, why one row is in its cluster: what each column says for
        it and against the second, and what would change it.

        Parameters
        ----------
        X, silos
            As in `predict`; the rows the model was fitted on, or others like them. A model keeps no rows: without X it
            takes those of `fit`, as long as you keep them.
        names : mapping of int to str, optional
            Names that you give to clusters.
        row : array or data frame of one row, optional
            In place of X; `silos` is then its silo, not needed where the model has one. Cells may be missing.

        Returns
        -------
        Explanation or RowExplanation
            Prints as text. Of clusters: `clusters` over all silos, `silos` for each; shows as a table in a notebook. Of
            a row: `reasons` by their size, `changes` of one column that lead to another cluster.

        Examples
        --------
        >>> import numpy as np, fmtc
        >>> rng = np.random.default_rng(0)
        >>> X = np.vstack([rng.normal([150, 1], 4, (30, 2)), rng.normal([129, 1], 4, (30, 2))])
        >>> model = fmtc.FMTC(2, random_state=0).fit(X)
        >>> len(model.explain().clusters)
        2
        >>> why = model.explain(row=[135.0, 1.0])
        >>> why.reasons[0].column, why.changes[0].after > 135
        ('column 0', True)
        """
        if row is not None:
            if X is not None:
                raise TypeError("row= takes the place of X: give one of them")
            return replace(self._explained_row(row, silos), names=dict(names or {}))
        rows, places, labels = self._labelled(X, silos)
        return self._explained(rows, {cid: labels[places[cid]] for cid in rows}, names=names)

    def plot(self, X: Any = None, *, silos: Any = None, names: Mapping[int, str] | None = None) -> Any:
        """Draw the rows of each silo in the space that tells clusters apart; needs ``pip install 'fmtc[plot]'``.

        Parameters
        ----------
        X, silos, names
            As in `explain`.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from .plot import embedding

        return embedding(self, X, silos=silos, names=names)

    def _known_rows(self, X: Any, silos: Any) -> tuple[Any, Any]:
        """Rows and silos as they were given or, without any, those of `fit`, if they are still there."""
        check_is_fitted(self)
        if X is not None:
            return X, silos
        if silos is not None:
            raise TypeError("silos= is about the rows of X: give both, or none for the rows of fit")
        seen = self._fitted.seen
        rows = None if seen is None else seen.recall()
        if seen is None or rows is None:
            raise InputError("a model keeps no rows, and those of fit are not there any more: give them as X")
        return rows, seen.silos

    def _labelled(self, X: Any, silos: Any) -> tuple[dict[str, Any], dict[str, Any], Array]:
        """Rows of each silo, their places among all, and the clusters of all; without X, of the rows of `fit`."""
        X, silos = self._known_rows(X, silos)
        found = self.predict(X, silos=silos)
        labels = np.concatenate(list(found.values())) if is_mapping(X) else np.asarray(found)
        parts = self._parts(X, silos, reset=False, ensure_all_finite=False)
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
        held, k = list(self.run_.held), self.n_clusters_
        found = explain_silos(rows, labels, features, n_clusters=k, names=names, matched=self._aligned, held=held)
        own = own_words({cid: self.run_.choices.get(cid) for cid in rows if cid not in held and not self.run_.joined})
        return replace(found, notes=(own, *found.notes)) if own else found

    def _explained_row(self, x: Any, silo: Any) -> RowExplanation:
        """`explain` of one row."""
        check_is_fitted(self)
        if np.ndim(x) == 1 and not hasattr(x, "columns") and not sp.issparse(x):
            x = np.asarray(x)[None]
        parts = self._parts(x, silo, reset=False, ensure_all_finite=False)
        [(cid, (rows, _)), *others] = parts.items()
        if others or rows.shape[0] != 1:
            raise DataError("explain(row=) takes one row; give the others one by one")
        return explain_row(self._models[cid], rows, self._features())

    def _atlas(self, *, feature_names: Any = None, words: Lookup | None = None) -> Atlas:
        """`atlas_`, with the names of columns, or the words of texts, where they are known."""
        found, features = self._fitted, self._features(words, feature_names)
        held = list(self.run_.held)
        return draw_models(found.models, features, found.presence, told=found.told, matched=self._aligned, held=held)

    def _features(self, words: Lookup | None = None, feature_names: Any = None) -> Features:
        """What the columns are called."""
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", None)
        is_text = hasattr(self, "text_recipe_") or any(model.holds_words for model in self._models.values())
        return Features.of(getattr(self, "schema_", None), feature_names, is_text=is_text, words=words)

    def _html_repr(self) -> str:
        """What a notebook shows: of a fitted model its silos and clusters, before that scikit-learn's diagram."""
        if not hasattr(self, "_fitted"):
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
    def _models(self) -> Mapping[str, ClientModel]:
        if "_fitted" not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} instance is not fitted yet; call fit first")
        return self._fitted.models

    @property
    def n_clusters_(self) -> int:
        """Clusters of the federation."""
        return next(iter(self._models.values())).k

    @property
    def view_(self) -> str:
        """The view of the model."""
        return kind_of(self._models)

    @property
    def view_reason_(self) -> str:
        """Why ``view="auto"`` chose the view; empty where it did not."""
        return self._of_run.why

    @property
    def converged_(self) -> bool | None:
        """Whether the rounds ended by `tol`; None where that is not known."""
        return self._of_run.converged

    @property
    def cluster_centers_(self) -> dict[str, Array]:
        """Centres of each silo: of a mixture, in the units of X, k x d; else among its projections, k x k."""
        return {cid: model.centers for cid, model in self._models.items()}

    @property
    def atlas_(self) -> Atlas:
        """The clusters of all silos, from their models: no row is needed, and only `explain` gives names."""
        check_is_fitted(self)
        return self._atlas()

    @property
    def projections_(self) -> dict[str, Array]:
        """W of each silo, d x k; the graph view only, and of a private run the silos that stayed alone."""
        found = {cid: W for cid, model in self._models.items() if (W := getattr(model, "W", None)) is not None}
        if not found:
            raise AttributeError(f"the {self.view_} view has no projections_; it has cluster_centers_")
        return found

    @property
    def consensus_(self) -> Array:
        """Z, the low-rank copy of the projections, d x k x m; the graph view only."""
        found = self._of_run.common.get("consensus")
        if found is None or not found.size or self.view_ != "graph":
            raise AttributeError("consensus_ is of the graph view in the process of its fit, and of no run by sums")
        return np.asarray(found)

    @property
    def kappa_(self) -> Array:
        """Pooling strength of each cluster."""
        if "kappa" not in self._of_run.common:
            raise AttributeError('kappa_ is of a mixture in the process of its fit; there is none with final="kmeans"')
        return np.asarray(self._of_run.common["kappa"])

    @property
    def _of_run(self) -> RunRecord:
        check_is_fitted(self)
        return self.run_

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Keep the fitted models in a folder: JSON and one safetensors file per silo, no training row inside.

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
        return write_model(Path(path), self, overwrite=overwrite)

    # --------------------------------------------------------------------------------------------- after the run

    def publish(self, path: str | Path, *, names: Mapping[int, str] | None = None, overwrite: bool = False) -> Path:
        """Write a kit with which a newcomer can join later, without sending anything: see `fmtc.join_later`.

        It holds what the silos have in common (mean consensus, common clusters, units of columns), names of columns
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
        from .later.publish import kit_of

        check_is_fitted(self)
        return write_kit(Path(path), kit_of(self, names), overwrite=overwrite)

    def update(self, X: Any, *, silos: Any = None, keep_last: int | None = None) -> Self:
        """Continue with new rows of some silos: a quarter of the rounds, and clusters keep their numbers.

        A model keeps no rows, so give *all rows of these silos that count now*: the old ones with the new ones behind
        them or, to forget the old ones, the new ones alone. Silos that are not named keep their models. Units of
        columns stay as they are.

        Parameters
        ----------
        X, silos
            As in `predict`; rows of known silos, the oldest first.
        keep_last : int, optional
            Use only the last `keep_last` rows of each silo: a window that forgets.

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
        >>> rows = {"north": month(0), "south": month(0)}
        >>> model = fmtc.FMTC(2, random_state=0).fit(rows)
        >>> before = model.predict([[0.0, 0.0]], silos="north")
        >>> rows["north"] = np.vstack([rows["north"], month(1)])
        >>> model.update({"north": rows["north"]}, keep_last=80).predict([[1.0, 1.0]], silos="north") == before
        array([ True])
        """
        from .later.update import update

        check_is_fitted(self)
        update(self, X, silos, keep_last)
        return self

    # ------------------------------------------------------------------------------------------------- inside

    def _sent(self) -> list[dict[str, Any]]:
        """What left the silos in the fit, for report.json."""
        advising = ADVICE.phases if self.run_.advice is not None else ()
        return sent((*COMMON, *view_method(self.view, self.privacy).phases, *advising), self.run_.received)

    def _params(self) -> dict[str, Any]:
        """Parameters by name, those of the views side by side with the others: what models and reports keep."""
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in ("graph", "mixture")}
        privacy = asdict(self.privacy) if isinstance(self.privacy, Privacy) else self.privacy
        known: dict[str, Any] = {}
        if isinstance(self.n_clusters, str):
            known["n_clusters"] = self.n_clusters_
            if not isinstance(self.clusters_per_silo, str):
                known["clusters_per_silo"] = self._own_clusters(self.n_clusters_)
        views = flat(self.view, self.graph, self.mixture)
        views["kappa"] = finite(views["kappa"])
        return own | views | {"privacy": privacy} | known

    def __getstate__(self) -> dict[str, Any]:
        """Without references to the rows of `fit`."""
        state = dict(super().__getstate__())
        if "_fitted" in state:
            state["_fitted"] = replace(state["_fitted"], seen=None)
        return state

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
    def _aligned(self) -> bool:
        """Whether a cluster number means the same in all silos."""
        return self.graph is None or self.graph.align

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters_

    def _each(self, X: Any, silos: Any, answer: Callable[[Any, Any], Array], **checks: Any) -> Any:
        """Answer for every row by its silo's model, in the order of the rows.

        Rows are looked at for NaN and infinity only where their projection, much smaller, has some.
        """
        try:
            return super()._each(X, silos, answer, ensure_all_finite=False, **checks)
        except NotFiniteError:
            self._parts(X, silos, reset=False)  # says what is wrong, and where
            raise


def advise(X: Any, *, silos: Any = None, k_range: Any = None, model: FMTC | None = None) -> Advice:
    """Advise how many clusters the rows support, with a range, from all silos and without labels.

    Where the rows of most silos fall into several large parts that do not touch, the advice is their number. Else it is
    the number of eigenvalues before the largest step in the spectrum of the silos' neighbour graphs, and the range has
    all numbers with a step nearly as large. It is advice: print it.

    Parameters
    ----------
    X, silos
        As in `FMTC.fit`. At most 1,200 rows of each silo are looked at.
    k_range : "auto", text such as "3..12" or pair of int, optional
        Numbers to compare; by default those of the model's `n_clusters`, if it is not a number. "auto" is 2 to 30, but
        at least four rows of the smallest silo for each cluster.
    model : FMTC, optional
        What will be fitted: its `scale`, `graph` and `random_state` count. It is not changed.

    Returns
    -------
    Advice

    Examples
    --------
    >>> import numpy as np, fmtc
    >>> rng = np.random.default_rng(0)
    >>> centers = rng.normal(size=(4, 60)).repeat(25, axis=0)
    >>> rows = {name: centers + rng.normal(size=centers.shape) for name in ("north", "south", "west")}
    >>> advice = fmtc.advise(rows, k_range="2..8", model=fmtc.FMTC(random_state=0))
    >>> advice.chosen, advice.low, advice.high, advice.verdict
    (4, 4, 4, 'range')
    """
    model = FMTC() if model is None else clone(model)
    parts = model._parts(X, silos, reset=True)
    if k_range is None and isinstance(model.n_clusters, str):
        k_range = model.n_clusters
    settings = advice_settings(model._settings(n_clusters=2), range_of(k_range))
    return ask_locally(model, {cid: Xt for cid, (Xt, _) in parts.items()}, settings).advice


def _by_place(found: Mapping[str, Any], places: Mapping[str, Any]) -> Array:
    """What was found for the rows of each silo, in the order of the input."""
    first = next(iter(found.values()))
    values = np.empty((sum(map(len, found.values())), *first.shape[1:]), dtype=first.dtype)
    for cid, own in found.items():
        values[places[cid]] = own
    return values


def _print_round(record: RoundRecord) -> None:
    print(f"[FMTC] round {record.round_no}: objective {record.objective:.6g}, {record.standing}", file=sys.stderr)


__all__ = ["FMTC", "Fitted", "advise"]
