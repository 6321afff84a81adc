"""The page of `train.export --format=web` in Chromium: the sets of `train.predict`, offline."""

import contextlib
import functools
import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from PIL import Image, ImageCms
from sklearn.datasets import load_digits, load_sample_images

from tests.peers.browser.chromium import Tab
from train.classifiers import packaged
from train.data.preparation import vertical_first_ratio
from train.data.steps import prepare
from train.package.web import web

ROOT = Path(__file__).parents[3]
# The Makefile unpacks it.
PACKAGE = ROOT / "build" / "onnxruntime-web" / "package"
STATE = """new Promise((resolve) => {
  const look = () => {
    const { state } = document.body.dataset;
    if (state === "ready" || state === "trouble") resolve(state); else setTimeout(look, 10);
  };
  look();
})"""
EVIL = "<img src=x onerror=\"document.title = 'evil'\">"
RESAMPLING = {"weight_bits": 22, "vertical_first_ratio": vertical_first_ratio()}
STEPS = [
    *({"step": "decode"}, {"step": "orient"}),
    {"step": "resize", "to": "middle_part", "size": [4, 4], "resampling": RESAMPLING},
]
DESCRIPTION = {
    "images": {"shape": ["n", 4, 4, 3], "steps": STEPS},
    "classes": [EVIL, "green", "blue"],
    # The root and a node of the first two classes.
    "taxonomy": {"names": ["r", "g", "b", "warm", "all"], "parents": [3, 3, 4, 4, 4]},
    "rule": {"in_words": "Each set has the classes above a quarter."},
    "data_set": "colours",
    "network": "a mean",
}


# Shares of red, green and blue; a class or a node in the set has a quarter.
MODEL = """<ir_version: 8, opset_import: ["": 18]>
colours (uint8[n, 4, 4, 3] images) =>
  (float[n, 3] probabilities, bool[n, 3] chosen, bool[n, 5] nodes, bool[n] none_of_these)
  <int64[2] axes = {1, 2}, int64[1] classes = {1}, float quarter = {0.25}, float dark = {30},
   float[3, 5] above = {0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}> {
  numbers = Cast <to = 1> (images)
  means = ReduceMean <keepdims = 0> (numbers, axes)
  sum = ReduceSum (means, classes)
  probabilities = Div (means, sum)
  chosen = Greater (probabilities, quarter)
  sums = MatMul (probabilities, above)
  nodes = Greater (sums, quarter)
  largest = ReduceMax <keepdims = 0> (means, classes)
  none_of_these = Less (largest, dark)
}"""


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


class Handler(http.server.SimpleHTTPRequestHandler):
    """Redirects from index.html to the folder, as many hosts of static pages do."""

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        if self.path == "/index.html":
            self.send_response(308)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()


@contextlib.contextmanager
def served(folder):
    """The address of a folder, until it is closed."""
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def give(tab, *paths):
    """Chooses files, and waits for the answers."""
    tab.evaluate("document.body.dataset.state = 'given'")
    tab.choose_file("files", *paths)
    tab.evaluate(STATE)


def shown(tab):
    """The name and the set of each card, the latest first."""
    script = """JSON.stringify(Array.from(document.querySelectorAll(".card"), (card) => [
      card.querySelector("h2").textContent,
      Array.from(card.querySelectorAll(".set .name"), (one) => one.textContent)]))"""
    return json.loads(tab.evaluate(script))


@pytest.fixture(scope="module")
def runtime():
    if not PACKAGE.is_dir():
        pytest.skip(f"{PACKAGE} is missing: npm has not got ONNX Runtime for browsers")
    return web.runtime(str(PACKAGE))


@pytest.fixture
def colours(tmp_path, runtime):
    """The folder of the page of a small classifier."""
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    web.write(tmp_path / "colours", model, DESCRIPTION, b"", runtime)
    return tmp_path / "colours"


@pytest.fixture
def tab(tmp_path):
    with Tab(tmp_path / "profile") as tab:
        yield tab


@pytest.fixture
def ready(tab, colours):
    """The tab of a phone with the page, when the classifier is loaded."""
    with served(colours) as address:
        tab.open(address, width=360, height=740)
        assert tab.evaluate(STATE) == "ready"
        yield tab


@pytest.fixture
def pictures(tmp_path):
    """An empty folder, which the browser does not write to."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder


def photographs(folder):
    """Parts of two real photographs in many formats and orientations."""
    real = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    small = real[0].crop((200, 100, 420, 260))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        part = real[orientation % 2].crop((0, 0, 300 + 40 * orientation, 200))
        part.save(folder / f"turned {orientation}.jpg", exif=exif, quality=90)
        if orientation > 5:
            part.save(folder / f"turned {orientation}.png", exif=exif)
    # A profile that takes red for green.
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = (profile.index(name, 132) for name in (b"rXYZ", b"gXYZ"))
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    small.save(folder / "profile.jpg", icc_profile=bytes(profile))
    small.save(folder / "progressive.jpg", progressive=True, quality=70)
    small.save(folder / "fine.jpg", subsampling=0)
    small.convert("CMYK").save(folder / "cmyk.jpg")
    small.convert("L").save(folder / "grey.jpg")
    small.convert("P").save(folder / "palette.png")
    for ending in ("webp", "gif", "bmp", "avif"):
        small.save(folder / f"other.{ending}")
    deep = np.random.default_rng(0).integers(2**16, size=(90, 70), dtype=np.uint16)
    Image.fromarray(deep).save(folder / "deep.png")
    real[1].resize((2100, 60)).save(folder / "wider than a tile.png")
    real[0].resize((4000, 3000)).save(folder / "large.jpg")


def test_pixels_are_those_of_the_program(ready, pictures):
    """For each way to resize, on photographs that are larger and smaller than the result."""
    resizings = [
        {"to": "middle_part", "size": [96, 64], "margin": 1.14, "resampling": RESAMPLING},
        {"to": "cover", "size": [250, 270], "resampling": RESAMPLING},
        {"to": "shorter_side", "side": 61, "resampling": RESAMPLING},
    ]
    grey = {"step": "grey", "weights": [19595, 38470, 7471], "bits": 16}
    crop = {"step": "crop", "size": [40, 48], "halves": "even"}
    field = "Object.assign(document.createElement('input'), { type: 'file', id: 'probe' })"
    ready.evaluate(f"document.body.append({field}); 1")
    photographs(pictures)
    for number, path in enumerate(sorted(pictures.iterdir())):
        ready.choose_file("probe", path)
        for index, resizing in enumerate(resizings):
            steps = [
                *({"step": "decode"}, {"step": "orient"}, {"step": "resize", **resizing}),
                *([crop] if index else []),
                *([grey] if number % 2 else []),
            ]
            script = f"""import("./prepare.js").then(async ({{ prepare }}) => {{
              const file = document.getElementById("probe").files[0];
              const {{ height, width, note, data }} = await prepare(file, {json.dumps(steps)});
              return JSON.stringify([height, width, note, Array.from(data)]);
            }})"""
            height, width, note, data = json.loads(ready.evaluate(script))
            wanted = prepare(path.read_bytes(), steps)
            assert (height, width, note) == (*wanted.shape[:2], "")
            np.testing.assert_array_equal(np.reshape(data, wanted.shape), wanted, str(path))


def test_other_pixels_are_told(ready, pictures):
    seen = Image.new("RGBA", (4, 4), (200, 100, 0, 9))
    seen.save(pictures / "transparent.png")
    exif = Image.Exif()
    exif[0x112] = 6
    seen.convert("RGB").save(pictures / "exif.webp", exif=exif)
    give(ready, *sorted(pictures.iterdir()))
    turned, transparent = reversed(ready.texts(".note"))
    assert "does not turn a WebP file" in turned
    assert "transparent pixels" in transparent


def test_what_is_no_photograph_is_named(ready, pictures):
    (pictures / "text.jpg").write_text("no image")
    Image.new("RGB", (10_000, 6000), "green").save(pictures / "large.jpg", quality=5)
    Image.fromarray(np.full((4, 4), 4000, np.uint16)).save(pictures / "dark.png")
    whole = pictures / "whole.png"
    Image.fromarray(load_sample_images().images[0]).save(whole)
    (pictures / "half.png").write_bytes(whole.read_bytes()[:9000])
    give(ready, *sorted(pictures.iterdir()))
    lines = ready.evaluate("document.getElementById('trouble').textContent").splitlines()
    words = {
        "dark.png": "it is nearly black",
        "half.png": "could not be decoded",
        "large.jpg": "it has 60.0 megapixels; at most 50",
        "text.jpg": "this browser cannot read it as an image",
    }
    assert [line.split(": ")[0] for line in lines] == [*words]
    assert all(said in line for line, said in zip(lines, words.values(), strict=True)), lines
    assert [name for name, _ in shown(ready)] == ["whole.png"]


def test_a_card_has_names_and_says_that_it_may_be_none(ready, pictures):
    Image.new("RGB", (4, 4), (20, 20, 0)).save(pictures / "dark.png")
    give(ready, pictures / "dark.png")
    # A name is a text.
    assert shown(ready) == [["dark.png", ["warm (2 classes)", EVIL, "green"]]]
    assert ready.texts(".size") == ["2 classes, may be none of these"]
    assert ready.texts(".probability") == ["100.0%", "50.0%", "50.0%"]
    # The latest answer is in the window, below what was asked with.
    card = "document.querySelector('.card').getBoundingClientRect()"
    assert ready.evaluate(f"0 <= {card}.top && {card}.bottom <= innerHeight")
    assert ready.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "evil" not in ready.evaluate("document.title")
    assert ready.texts("#rule") == [DESCRIPTION["rule"]["in_words"]]
    ready.evaluate("document.getElementById('remove').click()")
    assert shown(ready) == []


@pytest.mark.parametrize("name", [web.MODEL, f"{web.MODEL}.json", "ort-wasm-simd-threaded.wasm"])
def test_a_damaged_file_is_one_line(colours, tab, pictures, name):
    path = colours / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    Image.new("RGB", (4, 4), "red").save(pictures / "red.png")
    with served(colours) as address:
        tab.open(address)
        assert tab.evaluate(STATE) == "trouble"
        tab.choose_file("files", pictures / "red.png")
        (line,) = tab.texts("#trouble")
        assert "The classifier cannot be loaded: " in line
        assert f"{name} is missing, damaged" in line
        assert "\n" not in line
        assert shown(tab) == []


def test_the_sets_are_those_of_predict_without_a_network(tmp_path, tab, pictures, runtime):
    run(
        "train.main",
        "--config=configs/digits.py",
        "--config.num_epochs=2",
        f"--workdir={tmp_path}/run",
    )
    given = (f"--workdir={tmp_path}/run", "--coverage=0.9")
    run(
        *("train.export", *given, "--format=web", f"--out={tmp_path}/site"),
        f"--onnxruntime_web={PACKAGE}",
    )
    # The folder has the pair that other programs read.
    assert packaged.read(tmp_path / "site" / web.MODEL)
    photographs(pictures)
    for number in range(40):
        pixels = (load_digits().images[-1 - number] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(pictures / f"digit {number}.png")
    lines = map(json.loads, run("train.predict", *given, f"--images={pictures}").splitlines())
    expected = {Path(one["path"]).name: [row["class"] for row in one["set"]] for one in lines}
    with served(tmp_path / "site") as address:
        tab.open(address)
        # When the service worker has all files.
        tab.evaluate(f"{STATE}.then(() => navigator.serviceWorker.ready).then(() => 1)")
    for place in ("", "index.html"):
        tab.open(f"{address}{place}")
        assert tab.evaluate(STATE) == "ready"
    give(tab, *sorted(pictures.iterdir()))
    assert dict(shown(tab)) == expected
    assert tab.texts("#trouble") == [""]
    asked = [
        event["params"]["request"]["url"]
        for event in tab.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)
    refused = tab.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    assert tab.keeps_page()
