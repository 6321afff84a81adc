"""What the pages show, and how it is run: from the top of a page to its end, in a folder.

A `python` block runs, and so does each line of a `bash` block. Any other command is parsed: one
that is indented or in a sentence needs an archive, a cluster, other people's files or hours. The
folder has what README makes (`things`), and what is run is made shorter (`_shorter`).
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax

from tests.promises import commands, small_resnet, torch_files

ROOT = Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
NETWORK = "tests.promises.small_resnet:NETWORK"
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"python -m (train\.[a-z]+\b(?:[^`\n\\]|\\.|\\\n)*)")
# What ends a command in a line of a shell.
_END = re.compile(r" (?:\||&|>|2>|#)")


def all_pages():
    """README and the pages of docs/."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def has_blocks(page):
    """Whether something on the page runs."""
    return _BLOCK.search(_text(page)) is not None


def commands_of(page):
    """The program's commands on a page, each with flags as `train.NAME --flags`."""
    found = (command.replace("\\\n", " ") for command in _COMMAND.findall(_text(page)))
    alone = (_END.split(command)[0].strip() for command in found)
    # The last quote of a command that another one gets in quotes.
    alone = (one.removesuffix('"') if one.count('"') % 2 else one for one in alone)
    return [command for command in alone if "--" in command]


def photographs(folder):
    """Makes what README starts from: photographs in classes, new ones, and weights."""
    small_resnet.photographs(folder / "photos", each=130)
    small_resnet.photographs(folder / "labelled", each=10, seed=1)
    small_resnet.photographs(folder / "drawn", each=2, seed=2)
    (folder / "new").mkdir()
    for number, file in enumerate(sorted((folder / "drawn").rglob("*.png"))):
        file.rename(folder / "new" / f"{number}.png")
    shutil.rmtree(folder / "drawn")
    (folder / "resnet50.pth").write_bytes(
        torch_files.zip_file(torch_files.checkpoint(small_resnet.weights()))
    )


def things(folder):
    """Makes what README ends with, too: features, and the runs of photographs and of digits."""
    photographs(folder)
    with contextlib.chdir(folder):
        for line in (
            "train.embed --weights=resnet50.pth --images=photos --out=features.npz",
            "train.main --config=features --config.dataset.path=features.npz --workdir=runs/photos",
            "train.main --config=digits --config.model.name=linear --workdir=runs/digits",
        ):
            commands.ok(_shorter(line))


def run(page, folder):
    """Runs the blocks of a page in a folder, and returns what those of Python define."""
    text, names = _text(page), {}
    with (
        contextlib.chdir(folder),
        # What a reader has: the defaults of JAX.
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(2))
            if block[1] == "python":
                # As many empty lines as come before, so that an error names the line of the page.
                exec(compile("\n" * line + block[2], str(page), "exec"), names)
                continue
            for command in block[2].replace("\\\n", " ").splitlines():
                _run_line(command, f"{page}:{line + 1}")
    return names


def _run_line(line, where):
    """A line of a shell; a command of the program alone runs in this process."""
    ours = _COMMAND.fullmatch(line.partition(" #")[0].strip())
    if ours is not None and _END.search(line) is None:
        ended = commands.run(_shorter(ours[1]))
        assert ended.code == 0, f"{where}: {line}\n{ended.err}"
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    shorter = _COMMAND.sub(lambda found: f"python -m {_shorter(found[1])}", line)
    ended = subprocess.run(
        ["bash", "-ec", shorter], check=False, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert ended.returncode == 0, f"{where}: {line}\n{ended.stderr}"


def _shorter(line):
    """The command with few epochs, and on images with a small network, whose weights there are."""
    end = _END.search(line)
    line, rest = (line, "") if end is None else (line[: end.start()], line[end.start() :])
    module, *flags = shlex.split(line)
    has_images = any(re.match(r"--config=(configs/)?images\b", flag) for flag in flags)
    has = {flag.partition("=")[0] for flag in flags}
    if module == "train.main":
        flags.append("--config.num_epochs=2")
        if has_images:
            flags += [f"--config.model.name={NETWORK}", "--config.dataset.image_size=32"]
    elif "--weights" in has and "--workdir" not in has:
        flags += [f"--model={NETWORK}", f"--image_size={small_resnet.IMAGE_SIZE}"]
    return shlex.join([module, *flags]) + rest


def _text(page):
    return page.read_text(encoding="utf-8")
