"""
Cells of two laboratories
=========================

Single-cell data come in batches. Two laboratories measure the expression of the same genes in cells of the same organ,
with machines of their own, and one of them has kinds of cells that the other has not. Put together, cells may group by
laboratory before they group by kind; and often they may not be put together. Here each laboratory is a silo: the kinds
of cells are common, the offset of a laboratory is its own.

You can download this page as a notebook at its end.
"""

# %%
# The data
# --------
# Where the data set ``pancreas`` is at hand (``fmtc-bench data fetch pancreas``; 1,175 cells, logarithms of 219 genes),
# this page uses it. Otherwise it **simulates** a small matrix of counts: two laboratories, five kinds of cells of which
# the second has three, and another sensitivity for each gene in each laboratory. The line that is printed says which.

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from sklearn.cluster import KMeans

import fmtc.plot
from fmtc import FMTC
from fmtc.errors import DatasetError
from fmtc.metrics import score_silos
from fmtc_bench import datasets


def simulated(seed=0):
    """Log counts of 200 genes, kind and laboratory of each cell, names of genes and kinds."""
    rng = np.random.default_rng(seed)
    n_genes, marked = 200, 12
    base = rng.gamma(2.0, 2.0, n_genes)
    profiles = np.tile(base, (5, 1))
    for kind in range(5):
        profiles[kind, marked * kind : marked * (kind + 1)] *= 6  # genes that mark this kind
    cells = {"A": [0] * 120 + [1] * 90 + [2] * 60 + [3] * 40 + [4] * 30, "B": [0] * 60 + [1] * 130 + [2] * 50}
    counts, kinds, labs = [], [], []
    for lab, own in cells.items():
        sensitivity = rng.lognormal(0, 0.5, n_genes)
        depth = rng.lognormal(0, 0.3, len(own))
        rate = profiles[own] * sensitivity * depth[:, None]
        counts.append(rng.poisson(rate * rng.gamma(2.0, 0.5, rate.shape)))  # more spread than Poisson's, as in cells
        kinds += own
        labs += [lab] * len(own)
    counts = np.vstack(counts)
    X = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)
    return X, np.array(kinds), np.array(labs), [f"gene{j}" for j in range(n_genes)], [f"kind {j}" for j in range(5)]


try:
    data = datasets.load("pancreas")
    X, kind, lab, genes, kinds = data.X, data.y, data.clients, data.feature_names, data.class_names
    print("the pancreas data: Wang et al. 2016 and Xin et al. 2016")
except DatasetError:
    X, kind, lab, genes, kinds = simulated()
    print("simulated counts: the pancreas data are not on this machine")

k = len(kinds)
print(f"{X.shape[0]} cells, {X.shape[1]} genes, {k} kinds")
print(f"{'':12}" + "".join(f"{name:>10}" for name in kinds))
for name in np.unique(lab):
    print(f"{name:12}" + "".join(f"{np.sum((lab == name) & (kind == j)):10}" for j in range(k)))

# %%
# (A file of your own: ``fmtc fit cells.h5ad -k 7 --silo-column batch --out run`` reads AnnData, and
# ``FMTC.fit(adata, silos="batch")`` takes the object.)
#
# Pooled, alone, together
# -----------------------
# ACC is the share of cells that agree with their kind under the best matching of clusters to kinds, per laboratory.
# "One numbering" asks more: the same cluster number has to stand for the same kind in both. Kinds are used for these
# two numbers and for nothing else.

pooled = KMeans(k, n_init=10, random_state=0).fit_predict(X)
alone = np.empty(len(X), int)
for name in np.unique(lab):
    alone[lab == name] = KMeans(k, n_init=10, random_state=0).fit_predict(X[lab == name])
table = pl.DataFrame(X, schema=list(genes))
model = FMTC(n_clusters=k, random_state=0).fit(table, silos=lab)

print(f"{'':32}{'ACC':>6}{'one numbering':>15}")
results = {"k-means, laboratories pooled": pooled, "k-means, each alone": alone, "FMTC, together": model.labels_}
for name, labels in results.items():
    scores = score_silos(kind, labels, lab)
    print(f"{name:32}{100 * scores['mean']['acc']:6.1f}{100 * scores['pooled']['acc']:15.1f}")
print(f"\n{model.view_} view: {model.view_reason_}")

# %%
# On the pancreas data, FMTC reaches without pooling what k-means reaches on the pooled cells, and each laboratory alone
# is far behind: seven clusters, of which it has four kinds, divide the large kinds. In the simulation laboratories
# differ more, and pooling mixes up laboratories and kinds.
#
# Rows of many columns may suit either view, so both were tried, without labels. The last line says which was taken and
# why.
#
# Kinds that one laboratory lacks
# -------------------------------
# The share of each cluster in each laboratory. A kind that a laboratory has not gets a share near zero there, instead
# of half of another kind.

told = model.explain(table, silos=lab)
fmtc.plot.shares(told)
plt.show()

# %%
# Which genes mark a cluster?
# ---------------------------
# The largest differences between the cells of a cluster and the other cells of the same laboratory.

for cluster in told.clusters:
    marks = ", ".join(f"{d.column} {d.inside:.1f} against {d.outside:.1f}" for d in cluster.differences[:2])
    print(f"cluster {cluster.cluster} ({cluster.share:.0%}): {marks}")

# %%
# Clusters and known kinds
# ------------------------
# Rows are known kinds, columns clusters, and every row sums to one.

counts = np.array([[np.sum((kind == i) & (model.labels_ == j)) for j in range(k)] for i in range(k)])
shares = counts / counts.sum(axis=1, keepdims=True)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
ax.set(xlabel="cluster", xticks=range(k))
ax.set_yticks(range(k), [f"{name} ({n})" for name, n in zip(kinds, counts.sum(axis=1), strict=True)])
figure.colorbar(image, label="share of the cells of a kind")
plt.show()

# %%
# Rare kinds are the hard ones: a handful of cells is no cluster, and a large kind may be divided in two instead. The
# number of clusters was given here; nothing tells it.
