"""The atlas at the server: the same as where all models are, and no more than clients have said."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.views import FEW, graph_view

from fmtc import FMTC
from fmtc.describe import Atlas
from fmtc.describe.atlas import presence_of
from fmtc.privacy.rules import Policy, Rules
from fmtc.protocol.base import Nothing
from fmtc.protocol.common import END, heard, told
from fmtc.protocol.graph.number import NUMBER, Presence
from fmtc.protocol.method import method_of, view_method
from fmtc.protocol.mixture.view import CONCLUDE
from fmtc.runtime.driver import run
from fmtc.runtime.local import LocalTransport

CENTERS = np.array([[0.0, 0, 0, 0], [5, 0, 0, 0], [0, 5, 0, 0]])


def silos(counts=((40, 20, 20), (20, 40, 20), (30, 30, 3))):
    rng = np.random.default_rng(0)
    return {
        cid: CENTERS[np.repeat(np.arange(3), n)] + shift + rng.normal(size=(sum(n), 4))
        for cid, n, shift in zip("abc", counts, (0.0, 2.0, -1.0), strict=True)
    }


def conducted(model, data):
    """The server and its clients after a run; and its atlas."""
    settings, method = model._settings(), view_method(model.view, model.privacy)
    transport = LocalTransport(data, settings, method=method)
    result = run(transport, settings, method=method)
    return result, transport, method.atlas(result.server, settings)


MODELS = {
    "mixture": FMTC(3, view="mixture", max_iter=4, random_state=0, mixture=FEW),
    "mixture, cut short": FMTC(3, view="mixture", max_iter=1, random_state=0),  # several starts are still compared
    "graph": graph_view(3, max_iter=5, n_neighbors=35, random_state=0),
    "graph, scaled": graph_view(3, max_iter=5, n_neighbors=35, random_state=0, scale="global"),
    "graph, k-means": graph_view(3, max_iter=5, n_neighbors=35, random_state=0, final="kmeans"),
}


def assert_alike(server: Atlas, here: Atlas):
    """What numbers of columns can tell is the same; rounding differs in the last digits."""
    assert server.silos == here.silos
    for one, two in zip(server.clusters, here.clusters, strict=True):
        assert (one.presence, one.flags, one.name) == (two.presence, two.flags, two.name)
        assert one.cosine == pytest.approx(two.cosine, abs=2e-4)
        weights = ({f.what: f.weight for f in c.top_features} for c in (one, two))
        assert next(weights) == pytest.approx(next(weights), abs=2e-4)
        if two.top_features[0].amount is not None:
            amounts = ({f.what: f.amount for f in c.top_features} for c in (one, two))
            assert next(amounts) == pytest.approx(next(amounts), abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_server_draws_what_the_models_say(name):
    data = silos()
    _, _, atlas = conducted(MODELS[name], data)
    assert_alike(atlas, MODELS[name].fit(data).atlas_)
    assert "counted from 0" in atlas.notes[0]


def test_categories_are_levels_without_a_name():
    rng = np.random.default_rng(1)
    frames = {
        cid: pl.DataFrame(X, schema=list("wxyz")).with_columns(
            pl.Series("sex", np.where(rng.random(len(X)) < 0.1 + 0.8 * (X[:, 0] > 2.5), "m", "f"))
        )
        for cid, X in silos(((30, 30, 20),) * 3).items()
    }
    model = FMTC(3, view="mixture", max_iter=2, random_state=0, mixture=FEW).fit(frames)
    data = {cid: model._parts({cid: frame}, None, reset=False)[cid][0] for cid, frame in frames.items()}
    _, _, atlas = conducted(model, data)
    for one, two in zip(atlas.clusters, model.atlas_.clusters, strict=True):
        assert one.cosine == pytest.approx(two.cosine, abs=2e-4) and one.presence == two.presence
        amounts = {f.column: f.amount for f in two.top_features}
        sex = next(f for f in one.top_features if f.level)
        assert sex.column == "column 4" and sex.level in ("level 0", "level 1")
        assert abs(sex.amount) == pytest.approx(abs(amounts["sex"]), abs=1e-6)  # of two levels, either


# -------------------------------------------------------------------------------------------------- what leaves for it


@pytest.mark.parametrize("name", ["mixture", "graph"])
def test_shares_leave_in_the_last_answer_and_hide_small_clusters(name):
    result, transport, _ = conducted(MODELS[name], silos())
    small = 0
    for cid, found in transport.results().items():
        shares = presence_of(found.labels, 3)
        small += sum(share is None for share in shares)
        assert result.server.presence[cid].tolist() == [share or 0.0 for share in shares]
        last = [line for line in transport.ledgers[cid].lines() if line["phase"] in ("number", "conclude")]
        assert [[entry["field"] for entry in line["fields"]] for line in last] == [["shares"]]
    assert small or name == "graph"  # which prefers even clusters


def test_a_policy_may_hide_larger_clusters():
    client = type("Client", (), {"labels": np.repeat([0, 1, 2], [30, 10, 8])})()
    answer = Presence(shares=np.array([30, 10, 8]) / 48)
    for phase in (NUMBER, CONCLUDE):
        protect = Rules(Policy(min_share_rows=9)).protect(phase, answer, client)
        assert protect.shares.tolist() == [0.75, 0.25, 0.0]
        assert Rules().protect(phase, answer, client).shares.tolist() == [0.625, 0.2083, 0.1667]
    with pytest.raises(ValueError, match="min_share_rows must be a whole number"):
        Policy(min_share_rows=0)


@pytest.mark.parametrize("name", ["fmtc-sums", "fmtc-mixture-sums", "fmtc-auto-sums"])
def test_no_share_leaves_where_the_server_may_see_sums_only(name):
    closing = [getattr(phase, "inner", phase) for phase in method_of(name).closing]
    last = [phase for phase in closing if phase.name in ("number", "conclude")]
    assert last and all(phase.Answer is Nothing for phase in last)


@pytest.mark.parametrize("view", ["mixture", "graph"])
def test_of_sums_the_server_knows_all_silos_together(view):
    data = silos(((30, 30, 20),) * 3)
    model = graph_view(3, max_iter=4, n_neighbors=35, random_state=0) if view == "graph" else MODELS["mixture"]
    model = model.set_params(privacy="sums")
    try:
        result, _, atlas = conducted(model, data)
    finally:
        model.set_params(privacy=None)
    assert not result.server.presence and not result.server.parts
    assert atlas.silos == () and not any(one.presence or one.cosine or one.flags for one in atlas.clusters)
    assert len(atlas.clusters) == 3 and all(one.top_features for one in atlas.clusters)
    assert {one.top_features[0].column for one in atlas.clusters} <= {"column 0", "column 1"}


def test_a_share_that_no_rows_have_is_refused():
    sizes = {"k": 3}
    NUMBER.check_answer(Presence(shares=np.array([0.5, 0.5, 0.0])), NUMBER.Ask(order=np.arange(3)), sizes)
    for shares in ([0.9, 0.9, 0.0], [1.5, 0.0, 0.0], [-0.5, 0.5, 0.0]):
        with pytest.raises(Exception, match="shares of a whole"):
            NUMBER.check_answer(Presence(shares=np.array(shares)), NUMBER.Ask(order=np.arange(3)), sizes)


# ------------------------------------------------------------------------------------------------- what is told for it


def test_each_silo_is_told_of_its_own_concepts_only():
    _, _, atlas = conducted(MODELS["mixture"], silos())
    document = atlas.to_dict()
    for cid in "abc":
        ask = END.Ask(converged=True, **told(document, cid))
        END.check_ask(ask, {})
        kept = heard(ask.cosine, ask.flags)
        assert kept["flags"] == [one.flags[cid] for one in atlas.clusters]
        assert kept["cosine"] == [one.cosine[cid] for one in atlas.clusters]
    assert told(document, "nobody") == told(None, "a") == {}
    lacking = replace(atlas.clusters[0], flags={"b": "matched"}, cosine={"b": 1.0})
    some = replace(atlas, clusters=(lacking, *atlas.clusters[1:])).to_dict()
    assert heard(**told(some, "a"))["flags"][0] == ""
    assert heard(None, None) is None
