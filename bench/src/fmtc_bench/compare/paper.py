"""The numbers printed in the paper, as data to compare with, and arithmetic on them.

In-sample and out-of-sample scores are kept as whole hundredths of a percent, exactly as printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

TABLE_1 = """
acc           stsc   usc   mbc  smbc  smkc  mtsc sfomvc fedkmeans fedspectral  fmtc
webkb4       63.37 63.76 62.22 67.05 60.09 76.86  73.65     54.54       50.86 78.11
20newsgroups 56.18 39.15 44.75 51.00 36.09 72.32  70.15     30.35       27.10 71.30
reuters      85.17 79.36 75.71 85.03 69.93 77.89  76.50     69.37       28.19 89.40
keck         50.04 47.32 35.43 37.95 41.84 43.87  48.22     23.89       51.06 56.72
core50       39.63 30.40 40.27 45.97 27.28 56.64  54.30     25.04       47.32 61.37
bbcnews      54.78 55.02 68.17 70.35 74.22 76.67  75.50     22.96       55.13 77.90
yale         24.12 27.64 34.48 36.20 45.33 54.10  52.80     21.55       49.81 60.35
nmi           stsc   usc   mbc  smbc  smkc  mtsc sfomvc fedkmeans fedspectral  fmtc
webkb4       21.44 20.75 18.86 28.87 12.06 45.72  32.42     15.91       14.90 46.04
20newsgroups 24.14 23.71 13.27 22.96 21.51 65.90  62.55     21.58       25.27 67.83
reuters      66.54 57.85 57.79 68.24 37.68 56.09  54.20     44.17       15.14 73.85
keck         48.80 44.85 25.98 28.63 31.08 38.85  40.15     23.27       42.91 57.68
core50        5.43  0.92  9.07 15.87  0.20 20.38  21.10      0.45       22.87 26.74
bbcnews      28.32 34.49 58.58 56.48 60.09 63.67  62.90     26.97       22.22 63.81
yale         24.37 20.06 30.64 39.94 41.15 32.47  33.50     18.21       35.06 48.12
ri            stsc   usc   mbc  smbc  smkc  mtsc sfomvc fedkmeans fedspectral  fmtc
webkb4       62.45 62.56 60.19 66.40 59.98 67.42  57.62     38.95       61.12 74.28
20newsgroups 64.41 59.76 47.43 56.56 59.50 80.73  78.90     29.47       57.17 81.87
reuters      81.87 78.73 75.71 82.40 69.12 73.00  71.80     66.98       61.51 86.23
keck         83.25 82.60 83.95 84.24 84.57 83.85  82.50     58.11       81.57 85.64
core50       69.89 68.90 63.63 67.15 62.55 66.16  65.50     25.00       63.38 73.77
bbcnews      74.17 75.10 82.29 82.99 84.87 84.90  83.80     24.36       78.76 85.34
yale         22.62 30.92 35.16 38.68 44.82 61.65  60.10     20.04       55.19 67.28
"""

TABLE_2 = """
acc          stsc        usc         mbc         smbc        smkc        mtsc        fedkmeans   fedspectral fmtc
webkb4       63.37/49.43 63.76/49.10 62.22/46.67 67.05/53.64 60.09/43.26 76.86/62.26 54.54/40.36 50.86/35.60 78.11/64.67
20newsgroups 56.18/49.44 39.15/33.28 44.75/38.48 51.00/46.92 36.09/30.32 72.32/68.70 30.35/24.89 27.10/21.68 71.30/79.16
reuters      85.17/78.36 79.36/72.22 75.71/68.14 85.03/79.93 69.93/61.54 77.89/72.44 69.37/61.74 28.19/22.55 89.40/85.27
keck         50.04/33.53 47.32/31.23 35.43/23.03 37.95/25.81 41.84/27.61 43.87/31.13 23.89/15.77 51.06/34.21 56.72/47.64
core50       39.63/28.14 30.40/20.98 40.27/28.19 45.97/33.56 27.28/18.55 56.64/41.35 25.04/17.03 47.32/32.65 61.37/45.36
bbcnews      54.78/48.21 55.02/47.87 68.17/59.31 70.35/62.61 74.22/65.31 76.67/69.77 22.96/18.83 55.13/46.31 77.90/74.40
nmi          stsc        usc         mbc         smbc        smkc        mtsc        fedkmeans   fedspectral fmtc
webkb4       21.44/13.29 20.75/12.45 18.86/10.94 28.87/18.77 12.06/6.63  45.72/31.09 15.91/9.07  14.90/7.45  46.04/32.32
20newsgroups 24.14/19.31 23.71/18.49 13.27/9.95  22.96/18.83 21.51/16.35 65.90/56.67 21.58/16.18 25.27/18.20 67.83/60.19
reuters      66.54/59.89 57.85/50.91 57.79/49.70 68.24/62.78 37.68/30.90 56.09/51.04 44.17/37.10 15.14/33.86 73.85/69.88
keck         48.80/32.21 44.85/29.15 25.98/16.63 28.63/18.89 31.08/20.20 38.85/27.97 23.27/15.12 42.91/27.89 57.68/47.85
core50       5.43/3.53   0.92/0.55   9.07/5.80   15.87/10.47 0.20/0.11   20.38/14.06 0.45/0.28   22.87/15.32 26.74/8.82
bbcnews      28.32/24.07 34.49/28.97 58.58/51.55 56.48/50.27 60.09/53.48 63.67/58.58 26.97/22.12 22.22/18.22 63.81/58.21
ri           stsc        usc         mbc         smbc        smkc        mtsc        fedkmeans   fedspectral fmtc
webkb4       62.45/47.46 62.56/46.92 60.19/43.34 66.40/52.46 59.98/41.99 67.42/53.94 38.95/25.32 61.12/45.23 74.28/60.99
20newsgroups 64.41/57.97 59.76/52.59 47.43/40.32 56.56/52.04 59.50/51.17 80.73/78.31 29.47/23.58 57.17/48.60 81.87/71.30
reuters      81.87/75.32 78.73/71.64 75.71/67.38 82.40/77.46 69.12/60.14 73.00/67.89 66.98/58.94 61.51/52.28 86.23/82.35
keck         83.25/71.59 82.60/70.21 83.95/72.20 84.24/73.29 84.57/73.58 83.85/74.63 58.11/48.23 81.57/69.33 85.64/78.25
core50       69.89/60.10 68.90/58.56 63.63/53.45 67.15/57.75 62.55/52.54 66.16/58.22 25.00/19.50 63.38/54.51 73.77/69.89
bbcnews      74.17/68.22 75.10/68.34 82.29/75.71 82.99/77.18 84.87/78.93 84.90/79.81 24.36/20.22 78.76/71.26 85.34/79.54
"""

SCORES = ("acc", "nmi", "ri")
CLASS_SIZES = {  # rows of each class, where a set has one well-known form: the paper tells none
    "webkb4": (244, 153, 86, 558),
    "bbcnews": (510, 386, 417, 511, 401),
    "yale": (11,) * 15,
}
GAINS = {"webkb4": 1435, "core50": 2074, "reuters": 713, "20newsgroups": 1412}  # "more than ... improvements", its text

Printed = Mapping[tuple[str, str, str], int]  # (data set, method, score) to hundredths of a percent


def _read(table: str) -> Iterator[tuple[tuple[str, str, str], list[int]]]:
    score, methods = "", []
    for line in table.strip().splitlines():
        name, *values = line.split()
        if name in SCORES:
            score, methods = name, values
        else:
            for method, value in zip(methods, values, strict=True):
                yield (name, method, score), [int(number.replace(".", "")) for number in value.split("/")]


IN_SAMPLE: Printed = {cell: value for cell, (value,) in _read(TABLE_1)}
AGAIN: Printed = {cell: pair[0] for cell, pair in _read(TABLE_2)}  # in-sample scores as Table 2 repeats them
OUT_OF_SAMPLE: Printed = {cell: pair[1] for cell, pair in _read(TABLE_2)}
DATASETS = tuple(dict.fromkeys(name for name, _, _ in IN_SAMPLE))
METHODS = tuple(dict.fromkeys(name for _, name, _ in IN_SAMPLE))


def printed(dataset: str, method: str, score: str, part: str = "in") -> float | None:
    """A number of the paper between 0 and 1, or None where it has none.

    Parameters
    ----------
    dataset, method : str
        By our names.
    score : {"acc", "nmi", "ri"}
    part : {"in", "out"}
        Table 1, or the held-out column of Table 2.

    Examples
    --------
    >>> from fmtc_bench.compare.paper import printed
    >>> printed("webkb4", "fmtc", "acc"), printed("webkb4", "fmtc", "acc", "out"), printed("digits", "fmtc", "acc")
    (0.7811, 0.6467, None)
    """
    value = (IN_SAMPLE if part == "in" else OUT_OF_SAMPLE).get((dataset, method, score))
    return None if value is None else value / 10_000
