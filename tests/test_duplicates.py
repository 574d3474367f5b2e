"""No logic twice: runs of statements that have the same structure, whatever the names in them."""

import ast
from collections import defaultdict
from pathlib import Path

import fmtc

LEAST = 6  # statements, those inside other statements included
ROOT = Path(fmtc.__file__).parent


def structure(statements):
    """Names are numbered in the order they appear, and constants become their types."""
    numbers = {}

    def shape(node):
        if isinstance(node, ast.Name):
            return numbers.setdefault(node.id, len(numbers))
        if isinstance(node, ast.arg):
            return numbers.setdefault(node.arg, len(numbers))
        if isinstance(node, ast.Constant):
            return type(node.value)
        if isinstance(node, ast.AST):
            return (type(node), *(shape(getattr(node, field, None)) for field in node._fields if field != "ctx"))
        return tuple(map(shape, node)) if isinstance(node, list) else node

    return tuple(map(shape, statements))


def is_logic(statement):
    """Not an import, and not ``self.name = name``, of which scikit-learn wants one for each parameter."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return False
    return not (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Attribute)
        and isinstance(statement.value, ast.Name)
        and statement.targets[0].attr == statement.value.id
    )


def runs_in(tree):
    """The shortest runs of consecutive statements of a block, from each of its statements on, that are long enough."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if not isinstance(block, list):
                continue
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                block = block[1:]
            block = [statement for statement in block if is_logic(statement)]
            sizes = [sum(isinstance(inner, ast.stmt) for inner in ast.walk(statement)) for statement in block]
            for first in range(len(block)):
                ends = (end for end in range(first + 1, len(block) + 1) if sum(sizes[first:end]) >= LEAST)
                if (end := next(ends, None)) is not None:
                    yield block[first:end]


def duplicates(sources):
    """Places of the runs that occur more than once in some source texts, by name."""
    places = defaultdict(list)
    for name, text in sources.items():
        for run in runs_in(ast.parse(text)):
            places[structure(run)].append(f"{name}:{run[0].lineno}-{run[-1].end_lineno}")
    return [found for found in places.values() if len(found) > 1]


def test_no_logic_is_written_twice():
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    assert duplicates(sources) == []


def test_the_check_finds_what_it_should():
    one = """
def scale(rows):
    total = 0
    for row in rows:
        total += row ** 2
    if total == 0:
        raise ValueError("nothing")
    return total / len(rows)
"""
    other = one.replace("total", "energy").replace("nothing", "constant").replace("scale", "size")
    assert duplicates({"a.py": one, "b.py": other}) == [["a.py:3-8", "b.py:3-8"]]
    assert duplicates({"a.py": one, "b.py": other.replace("energy += row", "energy -= row")}) == []
    assert duplicates({"a.py": one, "b.py": other.replace("energy / len", "rows / len")}) == []
    assert duplicates({"a.py": one}) == []
