"""Where the commands find modules: of the current folder, only what the user has named is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What a program of the user needs from its environment, as an installed library.
LIBRARY = """
try:
    import missing
except ImportError:
    missing = None
import space.inside
"""
MODULES = {
    "library/library.py": LIBRARY,
    "library/space/inside.py": "",
    # In the folder of a stranger.
    "current/missing.py": "raise SystemExit('ran missing')",
    "current/space.py": "raise SystemExit('ran space')",
    "current/train.py": "raise SystemExit('ran train')",
    "current/named.py": "import library, helper, folder.inside",
    "current/helper.py": "def later():\n    import late\n    return late.NAME",
    "current/late.py": "NAME = 'late'",
    "current/folder/inside.py": "",
}
BEGIN = f"from topk_jax import _console_imports as imports; imports.begin({str(ROOT)!r})\n"


def run(folder, code, *, script=False):
    """Runs code in a stranger's folder as the current one, which Python searches first.

    Args:
        folder: where `MODULES` are.
        code: the code.
        script: whether it is a file, which a process that starts others needs.
    """
    for name, content in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    path = os.pathsep.join(map(str, ("", ROOT, folder / "library", folder / "current")))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    if script:
        (folder / "script.py").write_text(code)
        command = [sys.executable, str(folder / "script.py")]
    done = subprocess.run(
        command,
        cwd=folder / "current",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_library_misses_is_not_taken_from_the_current_folder(tmp_path):
    code = "import library, sys, train; print(library.missing, train.__path__)"
    assert run(tmp_path, BEGIN + code) == f"None {[str(ROOT / 'train')]}\n"


def test_no_entry_of_the_path_is_the_current_folder(tmp_path):
    (tmp_path / "link").symlink_to("current")
    code = f"import os, sys; sys.path += [{str(tmp_path / 'link')!r}, '.']\n{BEGIN}"
    code += "print([one for one in sys.path if os.path.realpath(one) == os.path.realpath('')])\n"
    code += "import importlib.util; print(importlib.util.find_spec('helper'))"
    assert run(tmp_path, code) == "[]\nNone\n"


@pytest.mark.parametrize("named", ["imports.name('named.sub')", "__name__ = imports.RECIPE"])
def test_what_the_user_names_is_found_with_what_it_imports(tmp_path, named):
    code = "import named; print(named.library.missing, named.helper.later())"
    assert run(tmp_path, f"{BEGIN}{named}\n{code}") == "None late\n"


def test_an_installed_module_that_the_user_names_finds_nothing_there(tmp_path):
    code = "imports.name('library'); import library; print(library.missing)"
    assert run(tmp_path, BEGIN + code) == "None\n"


def test_processes_find_what_the_program_has_found(tmp_path):
    code = (
        "import multiprocessing\n"
        # As the file of the console does; PYTHONPATH has the folder of the library.
        "from topk_jax import _console_imports as imports\n"
        "if __name__ == '__main__' or imports.is_process_of_the_program():\n"
        f"    imports.begin({str(ROOT)!r})\n"
        "if __name__ == '__main__':\n"
        "    imports.name('named')\n"
        "    import named\n"
        "    with imports.starting_processes():\n"
        "        pool = multiprocessing.get_context('spawn').Pool(1)\n"
        "    with pool:\n"
        "        print(pool.apply(named.helper.later))\n"
        "        try:\n"
        "            pool.apply(__import__, ('missing',))\n"
        "        except ModuleNotFoundError as error:\n"
        "            print(error)\n"
    )
    assert run(tmp_path, code, script=True) == "late\nNo module named 'missing'\n"
