"""Whether the columns of the test sets determine their classes: a random forest against the largest class.

The only use of labels before the comparison, and no method of clustering is run. A set belongs to the second
comparison if the forest (scikit-learn's defaults, five folds, at most 3,000 rows) is right at least ten points more
often than whoever always says the largest class. Run:

    FMTC_DATA=FOLDERS python bench/benchmarks/worthwhile.py [NAME ...]
"""

import sys

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score

from fmtc_bench.compare.federations import TEST_SETS
from fmtc_bench.datasets import load

ROWS, FOLDS, POINTS = 3000, 5, 10


def shares(data):
    """Rows that a forest and the largest class are right about, in percent."""
    rows = np.random.default_rng(0).permutation(len(data.y))[:ROWS]
    X, y = data.X[rows], data.y[rows]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    forest = cross_val_score(RandomForestClassifier(random_state=0), X, y, cv=folds).mean()
    return 100 * forest, 100 * np.bincount(y).max() / len(y)


def main(names):
    few = []
    print("| data set | rows | columns | classes | forest, % | largest class, % |\n|---|---|---|---|---|---|")
    for name in names or [found.name for found in TEST_SETS]:
        data = load(name)
        forest, largest = shares(data)
        n, d = data.X.shape
        print(f"| {name} | {n:,} | {d:,} | {data.n_clusters} | {forest:.1f} | {largest:.1f} |", flush=True)
        if forest < largest + POINTS:
            few.append(name)
    return f"columns do not determine the classes of {', '.join(few)}" if few else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
