"""
A first look: two silos, one numbering
======================================

Two offices read handwritten digits. The second has an old scanner: grey paper, half the contrast. Neither may send
its images to the other. This example clusters both, first with the images pooled (which is what may not be done),
then each office alone, then both together with :class:`fmtc.FMTC`.
"""

# %%
# The data
# --------
# The digits that ship with scikit-learn, 8 x 8 pixels. Each office gets 200 of them; 600 more are kept back to see
# what the models do with images they have not met.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits

from fmtc import FMTC, Graph
from fmtc.metrics import clustering_accuracy, score_silos

X, y = load_digits(return_X_y=True)
SILOS = ("new scanner", "old scanner")


def scan(images, silo):
    """What the office sees: the old scanner adds grey and halves the contrast."""
    return images if silo == "new scanner" else 6 + 0.5 * images


def split(seed, n=200, n_test=600):
    """Images and digits of the two offices, and images of later days."""
    rows = np.random.default_rng(seed).permutation(len(y))
    parts = dict(zip(SILOS, (rows[:n], rows[n : 2 * n]), strict=True))
    data = {silo: scan(X[r], silo) for silo, r in parts.items()}
    return data, {silo: y[r] for silo, r in parts.items()}, rows[-n_test:]


# %%
# Pooled, alone, together
# -----------------------
# Images have many columns, so this is the graph view. ``beta=0`` and k-means at the end leave every silo alone; the
# default couples them. Accuracy (ACC) is the share of images that agree with
# the digit under the best matching of clusters to digits, per office and averaged. "One numbering" asks more: the
# same cluster number has to stand for the same digit in both offices. One split says little with 200 images, so the
# table is the mean of five.


def accuracies(seed):
    data, digits, later = split(seed)
    truth = np.concatenate(list(digits.values()))
    office = np.repeat(SILOS, [len(d) for d in digits.values()])
    spectral = SpectralClustering(10, affinity="nearest_neighbors", random_state=0)
    pooled = spectral.fit_predict(np.vstack(list(data.values())))
    acc = score_silos(truth, pooled, office)["mean"]["acc"]
    rows = {"pooled, spectral": [acc, np.nan, clustering_accuracy(truth, pooled)]}
    alone = FMTC(10, view="graph", random_state=0, graph=Graph(beta=0, final="kmeans"))
    for name, model in (("each alone", alone), ("together", FMTC(10, view="graph", random_state=0))):
        model.fit(data)
        found = model.predict({silo: scan(X[later], silo) for silo in SILOS})
        rows[name] = [
            score_silos(truth, model.labels_, office)["mean"]["acc"],
            np.mean([clustering_accuracy(y[later], labels) for labels in found.values()]),
            clustering_accuracy(truth, model.labels_),
        ]
    return rows


tables = [accuracies(seed) for seed in range(5)]
print(f"{'':18}{'ACC':>7}{'new images':>12}{'one numbering':>15}")
for name in tables[0]:
    acc, new, common = 100 * np.mean([table[name] for table in tables], axis=0)
    print(f"{name:18}{acc:7.1f}{new:12.1f}{common:15.1f}".replace("nan", "  -"))

# %%
# Pooling finds the scanners before it finds the digits (one could undo the old scanner by hand, if one knew of it),
# and spectral clustering has no answer for new images. Alone, the offices do well; together they do a little
# better, on new images too, and their numbers agree more often.
#
# The same number, the same digit
# -------------------------------
# The mean image of every cluster, office by office. Columns carry the same cluster number in both; the grey of the
# old scanner is still there, because each office keeps a model of its own. Most columns show one digit. Where an
# office has divided a digit in two, or thrown two together, there is no partner to be found and the column shows that.

data, digits, _ = split(seed=0)
model = FMTC(10, view="graph", random_state=0)
labels = model.fit_predict(data)

figure, axes = plt.subplots(2, 10, figsize=(9, 2.4), layout="constrained")
for line, silo in zip(axes, SILOS, strict=True):
    for number, ax in enumerate(line):
        ax.imshow(data[silo][labels[silo] == number].mean(axis=0).reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
        if silo == SILOS[0]:
            ax.set_title(number, fontsize=10)
    line[0].set_ylabel(silo)
plt.show()

# %%
# How the rounds went
# -------------------
# The primal residual says how far the models are from their low-rank consensus, the dual residual how much the
# consensus still moves.

print(model.run_.stopped_because)
rounds = [record.round_no for record in model.run_.rounds]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogy(rounds, [record.primal_residual for record in model.run_.rounds], label="primal residual")
ax.semilogy(rounds, [record.dual_residual for record in model.run_.rounds], label="dual residual")
ax.axhline(model.tol, color="0.6", linestyle=":", label="tol")
ax.set(xlabel="round", ylabel="relative residual")
ax.legend(frameon=False)
plt.show()

# %%
# What left an office in a round was one matrix of 64 x 10 numbers and two numbers for the log, and no image:

print(f"{model.run_.rounds[-1].bytes_up:,} bytes up from both offices, {model.run_.rounds[-1].bytes_down:,} bytes down")
