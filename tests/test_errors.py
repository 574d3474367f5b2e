"""Words for messages."""

from fmtc.errors import joined, listed, nearest_names


def test_nearest_names():
    assert nearest_names("Betta", ["alpha", "beta"]).endswith("'beta'?")
    assert nearest_names("zzz", [f"n{j}" for j in range(7)]).endswith("'n0', 'n1', 'n2', 'n3', 'n4', and 2 more.")


def test_long_lists_are_cut():
    assert joined(["a", "b"], "; ") == "a; b"
    assert joined(list("abcdefg"), "; ", " clients") == "a; b; c; d; e; and 2 more clients"
    assert listed(["x", "it's"]) == """'x', "it's\""""
