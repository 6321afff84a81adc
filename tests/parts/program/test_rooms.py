"""Imports between the rooms of the program point one way, as CONTRIBUTING.md draws them."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]
# From the ground up: a room may import itself and the rooms in the lines before its own.
FLOORS = (
    ("train.foundation",),
    ("train.configuration",),
    ("train.devices", "train.models"),
    ("train.data",),
    ("train.scores",),
    ("train.reports",),
    ("train.training",),
    ("train.configuration.rules",),
    ("train.configuration.parsing",),
    ("train.run",),
    ("train.classifiers",),
    ("train.auditing", "train.prediction", "train.study"),
    ("train.monitoring", "train.package", "train.evaluating"),
    (
        *("train.main", "train.evaluate", "train.predict", "train.export", "train.prepare"),
        *("train.audit", "train.compare", "train.monitor", "train.embed"),
        *("train.serve", "train.plan", "train.__main__"),
    ),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules(package):
    """The source files of a package by the names of their modules."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path, *, when_run=True):
    """The modules that a source file imports, by default also inside functions."""
    tree = ast.parse(path.read_text())
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if node in inside and not when_run:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(name):
    """The innermost room that a module, or a name in one, belongs to; None if there is none."""
    parts = name.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in names if name in FLOOR_OF), None)


MODULES = modules("train")


def test_a_room_imports_what_lies_below_it():
    rooms = {module: room_of(module) for module in MODULES if module != "train"}
    assert not [module for module, room in rooms.items() if room is None]
    upwards = [
        f"{module} imports {imported}"
        for module, room in rooms.items()
        for imported in imports(MODULES[module])
        if (other := room_of(imported)) not in (None, room) and FLOOR_OF[other] >= FLOOR_OF[room]
    ]
    assert not upwards


def test_no_module_imports_itself_by_a_detour():
    graph = {}
    for module, path in MODULES.items():
        found = set()
        for name in imports(path, when_run=False):
            # A module, or something that is defined in one.
            found |= {name} & MODULES.keys() or {name.rpartition(".")[0]} & MODULES.keys()
        graph[module] = found - {module}
    TopologicalSorter(graph).prepare()


def test_the_library_needs_neither_the_program_nor_its_dependencies():
    allowed = {"jax", "numpy", "optax", "topk_jax"} | sys.stdlib_module_names
    for path in modules("topk_jax").values():
        assert {name.split(".")[0] for name in imports(path)} <= allowed, path
