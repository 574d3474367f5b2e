"""
For scikit-learn users who just want predict
============================================

You have one table, no silos, and know :class:`sklearn.mixture.GaussianMixture` and
:class:`sklearn.cluster.SpectralClustering`. The first finds ellipses and can predict; the second follows shapes and
cannot. :class:`fmtc.FMTC` with one silo is either of them, as the rows need it, and can predict in both cases. It also
takes missing cells.

You can download this page as a notebook at its end.
"""

# %%
# Three shapes
# ------------
# Two moons, two rings, and three groups of 500, 60 and 40 rows. Half of the rows are for fitting, half for predicting.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from sklearn.base import clone
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_wine, make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

from fmtc import FMTC

shapes = {
    "two moons": make_moons(600, noise=0.06, random_state=0),
    "two rings": make_circles(600, noise=0.05, factor=0.5, random_state=0),
    "500, 60 and 40 rows": make_blobs([500, 60, 40], centers=[[0, 0], [4, 4], [5, -3]], random_state=0),
}

# %%
# Shapes that do not touch make a graph in several parts. Scikit-learn and `FMTC` both warn of that; here it is wanted.

warnings.filterwarnings("ignore", message=".*(not fully connected|unconnected parts)")
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
print(f"{'adjusted Rand index':22}{'GaussianMixture':>16}{'Spectral':>10}{'FMTC':>7}{'FMTC, new rows':>16}  view")
for ax, (name, (X, y)) in zip(axes, shapes.items(), strict=True):
    k = len(np.unique(y))
    X = StandardScaler().fit_transform(X)
    old, new = X[::2], X[1::2]
    gaussian = GaussianMixture(k, random_state=0).fit(old)
    spectral = SpectralClustering(k, affinity="nearest_neighbors", random_state=0).fit(old)
    model = FMTC(k, random_state=0).fit(old)
    fitted = (gaussian.predict(old), spectral.labels_, model.labels_)
    scores = [adjusted_rand_score(y[::2], labels) for labels in fitted]
    scores.append(adjusted_rand_score(y[1::2], model.predict(new)))
    print(f"{name:22}{scores[0]:16.2f}{scores[1]:10.2f}{scores[2]:7.2f}{scores[3]:16.2f}  {model.view_}")
    ax.scatter(*new.T, c=model.predict(new), s=9, cmap="Dark2", vmax=7)
    ax.set(title=f"{name}: {model.view_}", xticks=[], yticks=[], aspect="equal")
plt.show()

# %%
# ``view_reason_`` says why a view was taken. ``FMTC(view="graph")`` and ``FMTC(view="mixture")`` decide for you.
#
# A table with gaps
# -----------------
# Scikit-learn's wine: 13 columns in as many units. `FMTC` scales columns itself (``scale="auto"``) and takes NaN;
# nothing is filled in.

wine = load_wine()
rng = np.random.default_rng(0)
for share in (0, 0.1, 0.3):
    X = np.where(rng.random(wine.data.shape) < share, np.nan, wine.data)
    model = FMTC(3, random_state=0).fit(X)
    score = adjusted_rand_score(wine.target, model.labels_)
    print(f"{share:4.0%} of the cells missing: adjusted Rand index {score:.2f}")

# %%
# An estimator like any other
# ---------------------------
# Pipelines, clones and parameters work as usual. ``transform`` gives the distance to each cluster.

pipeline = make_pipeline(PowerTransformer(), FMTC(3, random_state=0)).fit(wine.data)
print(pipeline.predict(wine.data[:5]), pipeline.transform(wine.data[:2]).round(1).tolist())
again = clone(model).set_params(view="graph", graph__n_neighbors=15).fit(wine.data)
print(again.view_, f"{adjusted_rand_score(wine.target, again.labels_):.2f}")

# %%
# What a cluster is, in the units of the table, and which rows are unlike all clusters. Data frames bring the names of
# columns, and categories if they have words:

frame = pl.DataFrame(wine.data, schema=wine.feature_names)
model = FMTC(3, random_state=0).fit(frame)
print(model.explain(frame).clusters[0])
print("outliers:", int(model.outliers(frame).sum()), "of", len(frame))

# %%
# A label depends on other rows only through the model, so ``predict`` on the training rows gives ``labels_``:

print(bool((model.predict(frame) == model.labels_).all()))

# %%
# When to keep to scikit-learn: if you want one covariance per cluster (``GaussianMixture(covariance_type="full")``), if
# you have a graph and no columns, or if you need neither shapes nor gaps nor several silos: `KMeans` is faster.
