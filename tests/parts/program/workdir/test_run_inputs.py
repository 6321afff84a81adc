"""A command never overwrites what a run was trained on."""

import pytest

from train.foundation.errors import UserError
from train.workdir import output_files, run_inputs


@pytest.fixture(params=["", "hf:"])
def config(request, tmp_path):
    """A configuration that names a folder, and files in two ways."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for name in ("photos/a/1.png", "weights.pth", "names.txt"):
        (tmp_path / name).write_text("content")
    return {
        "seed": 0,
        "dataset": {
            "name": "package:DATA",
            "path": f"{request.param}{tmp_path}/photos",
            "names": "~/names.txt",
        },
        "model": {"pretrained": "weights.pth"},
        "loss": {"name": "focal"},
    }


@pytest.fixture
def kept(tmp_path, config, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Folders have the names of losses, and have nothing to do with them.
    (tmp_path / "focal").mkdir()
    return run_inputs.of_configs({tmp_path / "run": config})


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("weights.pth", "not be config.model.pretrained of the run in "),
        ("photos/../weights.pth", "not be config.model.pretrained of the run in "),
        ("link", "not be config.model.pretrained of the run in "),
        ("names.txt", "not be config.dataset.names of the run in "),
        ("photos/a/1.png", "not be in config.dataset.path of the run in "),
        ("photos/new.npz", "not be in config.dataset.path of the run in "),
        ("other/a/2.png", "not be in config.dataset.path of the run in "),
    ],
)
def test_what_a_configuration_names_is_not_written_to(tmp_path, kept, out, message):
    (tmp_path / "link").hardlink_to(tmp_path / "weights.pth")
    (tmp_path / "other").symlink_to(tmp_path / "photos")
    for value in (out, str(tmp_path / out)):
        with pytest.raises(UserError, match=f"^--scores must {message}{tmp_path}/run; .* is$"):
            output_files.checked("scores", value, kept)


@pytest.mark.parametrize("out", ["a.npz", "focal/a.npz", "photos.npz"])
def test_other_files_are_written(kept, out):
    assert str(output_files.checked("scores", out, kept)) == out
