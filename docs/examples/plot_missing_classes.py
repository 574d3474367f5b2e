"""
Silos that lack classes
=======================

Eight offices read handwritten digits, and each meets only six of the ten. Nobody may send an image. Asked for ten
clusters, an office cuts the digits that it has in pieces; asked for six, its numbers mean nothing to the others. This
example asks for both: six clusters in each office, ten in all.
"""

# %%
# The data
# --------
# The digits that ship with scikit-learn. Every digit is in two offices or more, and no office knows which.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

from fmtc import FMTC
from fmtc.metrics import clustering_accuracy
from fmtc_bench.datasets import load, missing_classes

digits = load("digits")
X, y = digits.X, digits.y
office = missing_classes(y, n_clients=8, n_classes=6, random_state=0)
names = np.unique(office)
for name in names:
    print(name, "has the digits", *np.unique(y[office == name]))

# %%
# Three ways to ask
# -----------------
# Accuracy within offices matches clusters to digits in every office anew. Accuracy across offices allows one matching
# for all rows of all offices: a cluster number has to mean the same digit everywhere. Digits, which nobody has used to
# fit, are for these scores only.

ways = {
    "ten clusters everywhere": FMTC(10, view="graph", random_state=0),
    "six each, as if the same six": FMTC(6, view="graph", random_state=0),
    "six each of ten": FMTC(10, clusters_per_silo=6, view="graph", random_state=0),
}
scores = {}
for way, model in ways.items():
    labels = model.fit_predict(X, silos=office)
    within = np.mean([clustering_accuracy(y[office == name], labels[office == name]) for name in names])
    scores[way] = 100 * within, 100 * clustering_accuracy(y, labels)
    print(f"{way:30}within offices {scores[way][0]:.0f} %, across offices {scores[way][1]:.0f} %")

# %%
# What the numbers mean
# ---------------------
# Rows are cluster numbers, columns digits, all offices together; the lines of each picture are ordered so that the
# diagonal is as dark as it can be. A clear diagonal is a number that means one digit. Where offices have to find ten
# where there are six, or are taken to have the same six, numbers are mixtures of digits.


def table(labels):
    """Images by cluster number and digit, each digit as a share of its images; best matching on the diagonal."""
    counts = np.zeros((10, 10))
    np.add.at(counts, (labels, y), 1)
    order = linear_sum_assignment(-counts.T)[1]
    return counts[order] / counts.sum(axis=0), order


fig, axes = plt.subplots(1, 3, figsize=(10, 3.9), layout="constrained", sharex=True)
for ax, (way, model) in zip(axes, ways.items(), strict=True):
    shown, order = table(model.labels_)
    ax.imshow(shown, cmap="Blues", vmin=0, vmax=1)
    used = np.isin(order, model.labels_)
    ax.set(title=f"{way}\nacross offices {scores[way][1]:.0f} %", xlabel="digit", xticks=range(10))
    ax.set_yticks(range(10), [str(n) if there else "" for n, there in zip(order, used, strict=True)])
axes[0].set_ylabel("number of the cluster")
plt.show()

# %%
# Which office has what
# ---------------------
# The model knows, without a label, which clusters an office lacks: no image of it gets that number, and its probability
# is exactly zero. Shades are shares of an office's images; a frame marks digits that the office really has. A white
# frame, or a shade without one, is a mistake: here ones that went with the eights.

model = ways["six each of ten"]
order = table(model.labels_)[1]
shares = np.array([np.bincount(model.labels_[office == name], minlength=10)[order] for name in names])
shares = shares / shares.sum(axis=1, keepdims=True)

fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
image = ax.imshow(shares, cmap="Blues", vmin=0)
for row, name in enumerate(names):
    for digit in np.unique(y[office == name]):
        ax.add_patch(plt.Rectangle((digit - 0.45, row - 0.45), 0.9, 0.9, fill=False, edgecolor="#d95f02", lw=1.5))
ax.set_yticks(range(len(names)), names)
ax.set_xticks(range(10), [f"{number}\n“{digit}”" for digit, number in enumerate(order)])
ax.set_xlabel("cluster, and the digit that it stands for")
fig.colorbar(image, label="share of the office's images")
plt.show()

right = sum((shares[row] > 0)[np.unique(y[office == name])].sum() for row, name in enumerate(names))
print(f"{right} of {6 * len(names)} digits of single offices are clusters that the office has")
probabilities = model.predict_proba(X[:1], silos="silo1")
print("probabilities of one image at silo1:", *(f"{p:.2f}" for p in probabilities[0]))

# %%
# If nobody knows how many there are
# ----------------------------------
# With ``"auto"``, clusters of all offices are compared, and groups of those that are alike are counted. That is a
# proposal, so there is a warning. Here we ask for it, and show what it says.

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    own = dict.fromkeys(names, 6)
    proposed = FMTC("auto", clusters_per_silo=own, view="graph", random_state=0).fit(X, silos=office)
print(said[0].message)
