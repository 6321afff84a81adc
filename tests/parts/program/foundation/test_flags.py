"""The configuration of the command line, and flags that go together."""

from collections.abc import Iterator

import pytest
from absl import flags

from tests.parts.program.forked import ROOT
from train.foundation import kinds
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, plain, read_configuration

NAMES = ("a_switch", "a_number", "a_list", "a_text")


@pytest.fixture(autouse=True)
def _defined() -> Iterator[None]:
    flags.DEFINE_bool("a_switch", False, "a switch.")
    flags.DEFINE_integer("a_number", None, "a number.")
    flags.DEFINE_list("a_list", None, "a list.")
    flags.DEFINE_string("a_text", "usual", "a text.")
    yield
    flags.FLAGS.remove_flag_values(NAMES)


@pytest.mark.parametrize(
    ("row", "typed", "message"),
    [
        (Needed(("a_list",), "a list"), [], "--a_list is needed: a list"),
        (Needed(("a_list",), "a list"), ["--a_list="], "--a_list is needed: a list"),
        (Needed(("a_list",), "a list"), ["--a_list=1"], None),
        (Needed(("a_switch",), "on"), ["--noa_switch"], "--a_switch is needed: on"),
        (Flag("a_number", excludes=("a_switch",)), ["--a_number=0", "--noa_switch"], None),
        (Flag("a_text", exists=True), ["--a_text=/dev/null/a"], "; there is no /dev/null/a"),
        (Flag("a_text", exists=True), ["--a_text=/dev/null"], None),
        (Flag("a_number", needs=("a_switch",)), [], None),
        (Flag("a_number", needs=("a_switch",)), ["--a_number=0"], "--a_number needs --a_sw"),
        (
            Flag("a_number", needs=("a_text=other",), because="so it is"),
            ["--a_number=0"],
            "--a_number needs --a_text=other: so it is",
        ),
        (Flag("a_number", needs=("a_text=usual",)), ["--a_number=0"], None),
        (
            Flag("a_text=usual", excludes=("a_number",)),
            ["--a_number=0"],
            "--a_text=usual cannot be given with --a_number",
        ),
        (
            Flag("a_text", kinds.one_of(("usual", "other"))),
            ["--a_text=x"],
            "--a_text must be one of other, usual; got 'x'",
        ),
    ],
)
def test_a_row_holds_or_is_told(row, typed, message):
    for name in NAMES:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["", *typed])
    if message is None:
        check([row])
        return
    with pytest.raises(UserError) as raised:
        check([row])
    assert str(raised.value).endswith(message) or str(raised.value).startswith(message)


CONFIG = """
from ml_collections import ConfigDict, config_dict

def get_config(word="none"):
    return ConfigDict({
        "word": word, "on": False, "rate": 0.5, "depth": 3, "ks": (1, 3),
        "group": {"file": config_dict.placeholder(str), "size": config_dict.placeholder(int)},
    })
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "own").write_text(CONFIG)
    return f"{tmp_path}/own"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("on=True", True),
        ("on", True),
        ("rate=1", 1.0),
        ("depth=None", None),
        ("ks=(5,)", [5]),
        ("ks=5,7", [5, 7]),
        ("ks=a,b", ["a", "b"]),
        ("group.file=1=2", "1=2"),
        ("group.size=4", 4),
        # Of another type, which the check of the configuration tells.
        ("depth=0.5", "0.5"),
        ("on=yes", "yes"),
        ("ks=(1", ["(1"]),
    ],
)
def test_a_field_has_the_type_of_the_recipe(file, change, value):
    config = read_configuration(f"{file}:a:b", [change])
    assert config["word"] == "a:b"
    found = {**config, **{f"group.{name}": one for name, one in config["group"].items()}}
    name = change.partition("=")[0]
    assert found[name] == value
    assert type(found[name]) is type(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("deph=3", "no field config.deph; did you mean 'config.depth'?"),
        ("size=3", "no field config.size"),
        ("depth.more=3", "no field config.depth.more"),
    ],
)
def test_an_unknown_field_is_told(file, change, message):
    with pytest.raises(UserError) as error:
        read_configuration(file, [change])
    assert message in str(error.value)


WRONG = {
    "def get_config(:\n    pass": "SyntaxError: ",
    "import nothing_of_that_name": "ModuleNotFoundError in line 1: No module named 'nothing",
    "get_configuration = dict": "has no attribute 'get_config'",
    "def get_config(): raise SystemExit('a\\nb')": "SystemExit in line 1: a",
    "def get_config(): return {}": "AttributeError: ",
    "from ml_collections import ConfigDict\n"
    "def get_config(): return ConfigDict({'k': object()})": "TypeError: ",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_file_without_a_configuration_is_told(tmp_path, text):
    (tmp_path / "config.py").write_text(text)
    with pytest.raises(UserError, match="gives no configuration") as error:
        read_configuration(f"{tmp_path}/config.py")
    assert WRONG[text] in str(error.value)


def test_a_name_is_that_of_a_recipe(tmp_path, monkeypatch):
    # Whatever is there.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("def get_config(): pass")
    by_path = read_configuration(f"{ROOT}/configs/digits.py:cross_entropy")
    assert read_configuration("digits:cross_entropy") == by_path
    with pytest.raises(UserError, match="gives no configuration"):
        read_configuration("./digits")


def test_a_flag_has_the_home_folder_and_no_address(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert plain("--out=~/a.json") == "--out=/home/me/a.json"
    assert plain("--config.dataset.path=~/a=b") == "--config.=dataset.path=~/a=b"
    for argument in ("--out=gs://bucket/a", "--config.dataset.path=https://a/b.csv"):
        with pytest.raises(UserError, match="is an address: mount the bucket, or download it"):
            plain(argument)
