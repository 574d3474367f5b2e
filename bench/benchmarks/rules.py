"""What rules about small clusters cost: labels with no rule, with the default, and with small clusters omitted.

python bench/benchmarks/rules.py              # some minutes on one core; needs FMTC_DATA

ACC in percent, mean over silos and seeds, default settings of FMTC; labels are for scoring only. `same` says whether
all labels are those of a run without any rule, to the last row. `small` is the share of clusters that would leave with
fewer than five rows, at the end of the run.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fmtc import FMTC
from fmtc.errors import FmtcError
from fmtc.metrics import clustering_accuracy
from fmtc.privacy.rules import Policy, Rules
from fmtc_bench import datasets

RESULTS = Path(__file__).parent / "results" / "rules.json"
NAMES = (
    "yale", "orl", "utd_mhad", "heart_disease", "breast_wisconsin", "penguins", "vowels_h95", "digits", "bbcsport",
)  # fmt: skip


class NoRules(Rules):
    """Everything leaves as it is."""

    def protect(self, phase: str, answer: Any, client: Any) -> Any:
        """As it is."""
        return answer


RULES = {
    "none": NoRules(),
    "default": Rules(),
    "omit below 2": Rules(Policy(min_cluster=2, small_cluster="omit", few_rows="off", dominance="off")),
    "omit below 5": Rules(Policy(min_cluster=5, small_cluster="omit", few_rows="off", dominance="off")),
}


def fitted(data: Any, rules: Rules, seed: int) -> FMTC | str:
    """A fit in which these rules stand before each release, or the kind of error it ends with."""
    schema = getattr(data, "schema", None)
    model = FMTC(data.n_clusters, random_state=seed)
    X = data.X
    if schema is not None:
        model.schema_ = schema
    with patch("fmtc.privacy.outbox.Rules", lambda: rules):
        try:
            return model.fit(X, silos=data.clients)
        except FmtcError as error:
            return type(error.__cause__ or error).__name__


def score(model: FMTC, data: Any) -> float:
    """Mean ACC over silos."""
    found = [
        clustering_accuracy(data.y[data.clients == cid], model.labels_[data.clients == cid])
        for cid in np.unique(data.clients)
    ]
    return 100 * float(np.mean(found))


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=NAMES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in options.only:
        data = datasets.load(name)
        row: dict[str, Any] = {"data": name}
        for rule, rules in RULES.items():
            scores, same, small = [], True, []
            for seed in range(options.seeds):
                model = fitted(data, rules, seed)
                if isinstance(model, str):
                    scores.append(model)
                    continue
                scores.append(score(model, data))
                if rule == "none":
                    row.setdefault("labels", []).append(model.labels_)
                    sizes = np.concatenate(list(model._fitted.sizes.values()))
                    small.append(float((sizes[sizes > 0] < 5).mean()))
                    row["view"] = model.view_
                same &= bool(np.array_equal(model.labels_, row["labels"][seed]))
            numbers = [value for value in scores if not isinstance(value, str)]
            row[rule] = round(float(np.mean(numbers)), 1) if numbers else scores[0]
            row[f"same: {rule}"] = same
            if small:
                row["small"] = round(float(np.mean(small)), 3)
        del row["labels"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
