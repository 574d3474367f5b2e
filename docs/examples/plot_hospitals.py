"""
Four hospitals, one table each
==============================

Four hospitals hold tables of the same kind: a patient per row, measurements in columns, cells missing. No row may leave
a hospital. What groups of patients are there, how common is each of them in which hospital, and who gains if the
hospitals learn together?

This is the story of ``make demo``, step by step. You can download it as a notebook at the end of the page.
"""

# %%
# The tables
# ----------
# The patients are real: scikit-learn's breast cancer data, 569 women with a lump in the breast and 30 measurements of
# cell nuclei each. **The hospitals are ours**: we dealt the rows to four hospitals of different size and mix, and
# removed a tenth of the cells. In your case these would be four files, read by ``polars.read_csv`` or pandas, each in
# its own hospital.

import warnings

import matplotlib.pyplot as plt
import numpy as np

import fmtc.plot
from fmtc import FMTC
from fmtc.demo import hospitals
from fmtc.metrics import clustering_accuracy

tables = hospitals()
for name, table in tables.items():
    cells = table.drop("patient", "diagnosis")
    missing = sum(cells.null_count().row(0)) / (cells.height * cells.width)
    malignant = (table["diagnosis"] == "malignant").mean()
    print(f"{name:12}{table.height:4} patients, {missing:.0%} of the cells missing, {malignant:.0%} malignant")

# %%
# ``patient`` names the rows, and ``diagnosis`` is what we do not want to use: both are no features. (On the command
# line, ``fmtc fit university.csv city.csv county.csv island.csv -k 2 --drop diagnosis --out run`` finds the first
# itself.)

silos = {name: table.drop("patient", "diagnosis") for name, table in tables.items()}
diagnosis = {name: (table["diagnosis"] == "malignant").to_numpy().astype(int) for name, table in tables.items()}

# %%
# Learn together
# --------------
# Columns have different units, so they are scaled, by means and deviations over all hospitals. A table of 30 columns is
# fitted by the mixture view: every hospital has its own share and mean of each group, and groups have one shape.
# Missing cells stay missing.

model = FMTC(n_clusters=2, random_state=0).fit(silos)
print(f"{model.view_} view: {model.view_reason_}")
print(model.run_.stopped_because)

# %%
# What is a cluster?
# ------------------
# Numbers mean nothing to a doctor. `explain` says what the patients of a cluster have in common, in the units of the
# table: means inside, against those of the other patients of the same hospital.

told = model.explain(silos)
print(told)

# %%
# So cluster 1 are the large and dented nuclei. A name makes everything that follows easier to read.

names = {0: "small, smooth nuclei", 1: "large, dented nuclei"}
told = model.explain(silos, names=names)
fmtc.plot.profiles(told)
plt.show()

# %%
# Each hospital's share
# ---------------------
# A cluster number means the same in all hospitals, so shares can be compared. The university hospital, to which we
# dealt half of its patients from the malignant ones, has the largest share of cluster 1.

fmtc.plot.shares(told)
plt.show()

# %%
# What did joining change, and for whom?
# --------------------------------------
# Hold out every fifth patient of each hospital, five times, so that everybody is held out once. Fit the rest, all
# hospitals together and each alone, and ask which share of the held-out patients is grouped with their own diagnosis.
# The diagnosis is used for this number and for nothing else. (A 0 is no code for a missing value here: some nuclei have
# no dents.)

warnings.filterwarnings("ignore", "codes for missing values")
rng = np.random.default_rng(0)
fold = {name: rng.permutation(table.height) % 5 for name, table in tables.items()}
found = {name: {"alone": [], "together": []} for name in silos}
for held_out in range(5):
    train = {name: table.filter(fold[name] != held_out) for name, table in silos.items()}
    new = {name: table.filter(fold[name] == held_out) for name, table in silos.items()}
    together = FMTC(n_clusters=2, random_state=0).fit(train)
    for name in silos:
        alone = FMTC(n_clusters=2, random_state=0).fit({name: train[name]})
        truth = diagnosis[name][fold[name] == held_out]
        for how, fitted in (("alone", alone), ("together", together)):
            found[name][how].append(clustering_accuracy(truth, fitted.predict(new[name], silos=name)))

print(f"{'':12}{'alone':>8}{'together':>10}")
for name, scores in found.items():
    print(f"{name:12}{np.mean(scores['alone']):8.0%}{np.mean(scores['together']):10.0%}")

# %%
# The smaller hospitals gain, the largest one hardly does. A change of less than three points is a handful of patients.
# Do not expect a gain everywhere: on :doc:`four real hospitals </tutorials/demo>` joining helps one and costs another.
#
# New patients
# ------------
# Later patients get a cluster, a probability, and a warning if they are unlike everybody. (We take three that the model
# knows.) The probability compares clusters with each other, so it cannot tell outliers: a row far from both is still
# nearer to one of them.

later = silos["island"][:3]
print("cluster    ", model.predict(later, silos="island"))
print("probability", model.predict_proba(later, silos="island").max(axis=1).round(3))
print("outlier    ", model.outliers(later, silos="island"))
strange = later.with_columns(mean_radius=90.0)
print("outlier, with a radius of 90:", model.outliers(strange, silos="island"))

# %%
# What left a hospital
# --------------------
# Sums over its rows, never a row. A concept with one patient would be that patient, so ask for few clusters: see
# :doc:`what leaves a silo </privacy>`.

for line in sorted(model.run_.received, key=lambda line: -line.bytes)[:5]:
    print(f"{line.phase:12}{line.field:10}{line.times:5} times {line.bytes:12,} bytes, all hospitals together")

# %%
# Keep it
# -------
# ``model.save("model")`` writes a small folder without a row inside, and ``fmtc.write_report(model, "page.html",
# silos, names=names)`` a page for the browser, which shows rows as points: keep that one where the rows are.
