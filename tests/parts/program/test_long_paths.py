"""Paths that no file can have: one line and exit code 2, in every flag of every command."""

import pytest

from tests.parts.program.forked import error_lines, start

# More than Linux takes in all, and more than a file system takes for a name.
PATHS = {"long": "/" + "a/" * 2500, "long name": "/tmp/" + "a" * 300}
# The module, and the flags with PATH for the path.
FLAGS = {
    "workdir of training": ("main", "--config=digits", "--workdir=PATH"),
    "recipe": ("main", "--config=PATH"),
    "data": ("main", "--config=digits", "--config.dataset.data_dir=PATH", "--workdir=WORK"),
    "photographs": ("main", "--config=folder", "--config.dataset.path=PATH", "--workdir=WORK"),
    "table": ("main", "--config=table", "--config.dataset.path=PATH.csv", "--workdir=WORK"),
    "features": ("main", "--config=features", "--config.dataset.path=PATH", "--workdir=WORK"),
    "weights": ("main", "--config=digits", "--config.model.pretrained=PATH", "--workdir=WORK"),
    "earlier run": ("main", "--config=digits", "--config.model.start_from=PATH", "--workdir=WORK"),
    "workdir of evaluation": ("evaluate", "--workdir=PATH"),
    "scores": ("evaluate", "--scores=PATH", "--labels=PATH"),
    "workdir of prediction": ("predict", "--workdir=PATH", "--images=PATH", "--top_k=2"),
    "workdir of export": ("export", "--workdir=PATH", "--top_k=2", "--out=PATH"),
    "runs to compare": ("compare", "--runs=PATH"),
    "sweep": ("compare", "--sweep=PATH", "--runs=WORK"),
    "study": ("compare", "--study=PATH", "--runs=WORK"),
    "runs of a table": ("tables", "--table=4.4", "--on=synthetic_species", "--runs=PATH"),
    "figure": ("figures", "--figure=level_sets", "--out=PATH.png"),
    "prepared data": ("prepare", "--dataset=plantnet300k", "--data_dir=PATH", "--manual_dir=PATH"),
    "images to embed": ("embed", "--images=PATH", "--weights=PATH", "--out=PATH"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("flags", FLAGS)
def test_a_path_that_is_too_long_is_one_line(tmp_path, flags, path):
    module, *given = FLAGS[flags]
    places = (("PATH", PATHS[path]), ("WORK", str(tmp_path / "run")))
    for name, place in places:
        given = [one.replace(name, place) for one in given]
    ended = start(f"train.{module}", *given)
    assert ended.returncode == 2, ended
    assert ended.stderr.startswith("error: "), ended
    assert len(error_lines(ended.stderr)) == 1, ended
    assert list(tmp_path.iterdir()) == []
