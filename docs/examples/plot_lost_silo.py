"""
Three silos of different sizes, one dies and returns
====================================================

North has many rows, south some, west few. They are clustered by a federation of real processes: a server, one
process per silo, mutual TLS between them, all on this machine. In the middle of the run the process of south is
killed. It is started again, the run resumes from the last round, and ends with the labels of an undisturbed run.

This example needs ``pip install 'fmtc[federation]'`` and takes the better part of a minute, most of it to start
processes. :doc:`A real federation </explanation/federation>` tells what runs where when the silos are far apart.
"""

# %%
# The silos
# ---------
# Handwritten digits, dealt unevenly. Each silo keeps its rows in a file of its own; a
# :class:`~fmtc.runtime.kitclient.ClientSource` says where.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import psutil
from sklearn.datasets import load_digits

from fmtc.runtime.driver import run
from fmtc.runtime.flare.local import LocalFederation
from fmtc.runtime.kitclient import ClientSource
from fmtc.runtime.local import LocalTransport
from fmtc.settings import Settings

X = np.ascontiguousarray(load_digits().data)  # row by row in memory, as files are read: the last bit depends on it
silos = {"north": X[:500], "south": X[500:750], "west": X[750:850]}

folder = tempfile.TemporaryDirectory()
sources = []
for name, rows in silos.items():
    path = Path(folder.name) / f"{name}.npy"
    np.save(path, rows)
    sources.append(ClientSource(name, str(path)))

# %%
# The federation, and a silo that dies
# ------------------------------------
# Whatever happens in a run is an event, and `listen` gets them all. Ours collects them and, after round 10, kills the
# process of south and all it started. As with a machine that loses its power, the others find out by themselves.
# South's process is started again, as ``fmtc join`` would do.
#
# All three silos are needed here. With ``min_clients=2`` the other two would continue without south until it is back.

settings = Settings(n_clusters=10, max_iter=30, tol=0, seed=0)
events = []


def listen(event):
    """Write an event down; after round 10 kill south."""
    events.append(event)
    if event["event"] == "round" and event["record"]["round_no"] == 10:
        kill("south")


def kill(silo):
    """What a power cut does."""
    parent = psutil.Process(federation.processes[silo].process.pid)
    for process in (*parent.children(recursive=True), parent):
        process.kill()
    events.append({"event": "killed", "time": time.time()})


with LocalFederation(sources, lost_after=5) as federation:
    outcome = federation.run(settings, listen=listen)

begun = events[0]["time"]
for event in events:
    if event["event"] != "round":
        print(f"{event['time'] - begun:5.1f} s  {event['event']}")

# %%
# `away` is what the server concludes after five seconds without a sign of life from south. The job ends, a new one is
# submitted when south is back, and each silo resumes from the state that it has saved itself: the embedding of south's
# rows was never anywhere else.
#
# The same labels
# ---------------
# A run in one process, which nothing disturbs, gives the same labels and the same consensus. Equal, not close: it is
# the same code on the same numbers.

transport = LocalTransport(silos, settings)
undisturbed = run(transport, settings)

for name in silos:
    same = np.array_equal(outcome.kept[name].client.labels, transport.clients[name].labels)
    print(f"{name:5}  {len(silos[name])} rows, labels equal: {same}")
print("consensus equal:", np.array_equal(outcome.common["consensus"], undisturbed.server.Z))

# %%
# What it looked like
# -------------------
# By round there is nothing to see: the residuals of the federation lie on those of the undisturbed run. By the clock
# there is a gap, in which south was away and the others waited.

rounds = [event for event in events if event["event"] == "round"]
killed = next(event["time"] for event in events if event["event"] == "killed") - begun
back = [event["time"] for event in events if event["event"] == "submitted"][-1] - begun
lost_at = max(event["record"]["round_no"] for event in rounds if event["time"] - begun < back)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
numbers = [record.round_no for record in undisturbed.history]
for kind, color in (("dual", "C1"), ("primal", "C0")):
    alone, together = (
        [getattr(record, f"{kind}_residual") for record in history]
        for history in (undisturbed.history, outcome.history)
    )
    left.semilogy(numbers, alone, color=color, alpha=0.5, label=f"{kind} residual, undisturbed")
    left.semilogy(numbers, together, ".", color=color, label=f"{kind} residual, federation")
left.axvline(lost_at + 0.5, color="0.5", linestyle="--")
left.annotate("south is lost", (lost_at, 1.5e-3), color="0.3", fontsize=9, ha="right")
left.set(xlabel="round", ylabel="relative residual")
left.legend(frameon=False, fontsize=9, loc="upper right")

right.plot([event["time"] - begun for event in rounds], [event["record"]["round_no"] for event in rounds], ".-")
right.axvspan(killed, back, color="0.85")
right.annotate("south is away", ((killed + back) / 2, 1), color="0.3", fontsize=9, ha="center")
right.set(xlabel="seconds", ylabel="rounds done", xlim=(0, None), ylim=(0, None))
plt.show()

folder.cleanup()
