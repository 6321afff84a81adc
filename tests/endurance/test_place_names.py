"""The names of the real package, and the commands of docs/place_names.md."""

import shlex

import numpy as np

from configs import place_names as recipe
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.data.test_place_names_run import ENVIRONMENT, keep
from tests.parts.program.forked import ROOT, start
from train.data import gazetteer

PAGE = ROOT / "docs" / "place_names.md"


def test_the_page_counts_the_names_of_the_package(tmp_path):
    page = " ".join(PAGE.read_text().split())
    sizes = {}
    for target in ("country", "region"):
        dataset = dataset_spec({**recipe.get_config().dataset.to_dict(), "target": target}).load(
            str(tmp_path)
        )
        splits = (dataset.train, dataset.validation, dataset.test, dataset.balanced_test)
        numbers = [dataset.num_classes, *map(len, splits)]
        counts = np.bincount(dataset.train.labels)
        sizes[target] = numbers
        assert f"| {' | '.join(f'{number:,}' for number in numbers)} |" in page
        assert f"{counts.min():,} to {counts.max():,}" in page
    listed = (ROOT / "docs" / "data.md").read_text()
    train, validation, test = sizes["country"][1:4]
    assert f"| 207 countries | {train:,}, {validation:,}, {test:,} |" in listed
    source = gazetteer.read(str(tmp_path))
    pairs = np.unique(np.stack([source.name, source.country]), axis=1)
    countries_of_name = np.bincount(pairs[0])
    assert f"{len(source.names):,} different names" in page
    assert f"{(countries_of_name > 1).sum():,} of them occur in several countries" in page
    assert f"San Antonio in {countries_of_name.max()}" in page
    assert source.names[countries_of_name.argmax()] == "san antonio"


def test_the_commands_of_the_page_run(tmp_path):
    keep(3000, tmp_path / "data")
    lines = [line[4:] for line in PAGE.read_text().splitlines() if line.startswith("    ")]
    commands = "\n".join(lines).replace("\\\n", "").splitlines()
    commands = [shlex.split(line) for line in commands if line.startswith("python -m train.")]
    modules = [command[2] for command in commands]
    assert modules == ["train.main", "train.predict", "train.evaluate"]
    for _, _, module, *arguments in commands:
        found = [argument.replace("configs/", f"{ROOT}/configs/") for argument in arguments]
        environment = {**ENVIRONMENT, "TFDS_DATA_DIR": str(tmp_path / "data")}
        done = start(module, *found, environment=environment, folder=str(tmp_path))
        said = "page  sets.html\n" if module == "train.predict" else ""
        assert (done.returncode, done.stderr) == (0, said)
    assert (tmp_path / "sets.html").exists()
