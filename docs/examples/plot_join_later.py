"""
A hospital joins a month later
==============================

Three hospitals have clustered their patients together. A month later a fourth one, on an island, wants the same groups
of patients. Nobody wants to start the run again, and the island may not send anything. So the federation publishes what
its hospitals have in common, and the island fits at home.
"""

# %%
# The run
# -------
# The patients are real, scikit-learn's breast cancer data; the hospitals are ours, as in
# :doc:`/tutorials/gallery/plot_hospitals`. The island is not there yet.

import socket
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fmtc import FMTC, join_later
from fmtc.demo import hospitals
from fmtc.metrics import clustering_accuracy

tables = hospitals()
silos = {name: table.drop("patient", "diagnosis") for name, table in tables.items()}
diagnosis = {name: (table["diagnosis"] == "malignant").to_numpy().astype(int) for name, table in tables.items()}

members = {name: rows for name, rows in silos.items() if name != "island"}
model = FMTC(n_clusters=2, random_state=0).fit(members)
print(f"{len(members)} hospitals, {model.view_} view")

# %%
# What is published
# -----------------
# Means over the three hospitals: where the common groups lie, how alike the hospitals are, and the units of columns. No
# row, and nothing of a single hospital; with fewer than three, `publish` refuses.

folder = Path(tempfile.mkdtemp())
kit = model.publish(folder / "kit", names={0: "small, regular nuclei", 1: "large, irregular nuclei"})
for file in sorted(kit.iterdir()):
    print(f"{file.name:18}{file.stat().st_size:6} bytes")

# %%
# The island joins
# ----------------
# The island is small: in its first month it has seen 25 patients. To be sure that nothing leaves, we take the network
# away: whoever opens a socket fails. The island clusters its patients alone, looks at what the published model says of
# them, and follows it only if both see much the same.

patients, truth = silos["island"], diagnosis["island"]
first_month = patients[:25]


def no_network(*args, **kwargs):
    raise AssertionError("nothing may leave")


kept, socket.socket = socket.socket, no_network
careful = join_later(kit, first_month, name="island", random_state=0)
print(careful.run_.joined.reason)

# %%
# It declines, to be on the safe side: the groups it finds alone are others than the federation's. But groups of 25
# patients say little, and the island knows something that no number does: it treats the same illness. So it asks for
# the federation's guidance.

island = join_later(kit, first_month, name="island", guide=True, random_state=0)
socket.socket = kept
print(island.run_.joined.reason)
print(f"{island.run_.joined.moved:.0%} of the patients are in another group than without the federation")

# %%
# Was it worth it?
# ----------------
# The diagnosis, which nobody has used, can tell. All sixty patients that the island has seen by now are put into groups
# by a model of the first 25 alone, by the one that joined later, and by that of a member with the same 25 patients.

alone = FMTC(n_clusters=2, random_state=0).fit({"island": first_month})
member = FMTC(n_clusters=2, random_state=0).fit(members | {"island": first_month})
groups = {
    "alone": alone.predict(patients),
    "joined later": island.predict(patients),
    "a member": member.predict(patients, silos="island"),
}
accuracy = {way: clustering_accuracy(truth, found) for way, found in groups.items()}
for way, value in accuracy.items():
    print(f"{way:14}{value:.1%}")

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
bars = axes[0].barh(list(accuracy), [100 * v for v in accuracy.values()], color=["#999999", "#1b6ca8", "#8fbcd4"])
axes[0].bar_label(bars, fmt="%.0f", padding=3)
axes[0].invert_yaxis()
axes[0].set(xlabel="patients of the island in the right group (%)", xlim=(50, 100))
columns = ["mean_concave_points", "worst_radius"]
x, y = (patients[column].to_numpy() for column in columns)
for number, name, shape in ((0, "small, regular nuclei", "o"), (1, "large, irregular nuclei", "^")):
    rows = groups["joined later"] == number
    axes[1].scatter(x[rows], y[rows], s=22, marker=shape, label=f"{number}: {name}")
axes[1].set(xlabel=columns[0].replace("_", " "), ylabel=columns[1].replace("_", " "), title="the island's patients")
axes[1].legend(title="the federation's numbers", fontsize=8, loc="lower right")
plt.show()

# %%
# The numbers are the federation's
# --------------------------------
# Group 1 is the same at the island and at the other hospitals: on the patients of the city hospital, the island's model
# and the city's own say the same of almost everybody.

city = silos["city"]
same = np.mean(island.predict(city) == model.predict(city, silos="city"))
print(f"the same group for {same:.0%} of the city's patients")

# %%
# Later still
# -----------
# New patients come in. The model goes on from where it is, in a quarter of the rounds, and groups keep their numbers. A
# model keeps no rows, so you give all that count: old ones and new ones, or a window of the last.

before = island.predict(city)
island.update(patients)
print(island.run_.stopped_because)
print(f"{np.mean(island.predict(city) == before):.0%} of the city's patients are in the group they were in")
