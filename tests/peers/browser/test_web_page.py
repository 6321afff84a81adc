"""The page of `train.export --format=web` in Chromium: the sets of `train.predict`, offline."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import PIL
import pytest
from matplotlib import cbook
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from tests.peers.browser.chromium import Tab
from train.data.steps import prepare
from train.prediction.web_page import runtime, site

ROOT = Path(__file__).parents[3]
# A limit for a hang; a command takes some ten seconds.
TIME_LIMIT = 300
# The Makefile unpacks it.
PACKAGE = ROOT / "build" / "onnxruntime-web" / "package"
NUM_DIGITS = 60
NUM_PARTS = 58
STATE = """new Promise((resolve) => {
  const look = () => {
    // The browser shows an error of its own.
    if (document.getElementById("trouble") === null) return resolve("no page");
    const { state } = document.body.dataset;
    if (state === "ready" || state === "trouble") resolve(state); else setTimeout(look, 10);
  };
  look();
})"""
# As the description of a program has it.
RULE = {"rule": "top_k=1", "promised": None, "calibrated_on": None, "in_words": "Of the answers."}
RESAMPLING = {"filter": "bilinear", "antialias": True, "weight_bits": 22}


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass


class WithoutIndex(Quiet):
    """Redirects from index.html to the folder, as hosts of static pages do."""

    def do_GET(self):
        if self.path == "/index.html":
            self.send_response(308)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()


class Server:
    """Serves a folder until it is closed."""

    def __init__(self, folder, kind=Quiet):
        handler = functools.partial(kind, directory=folder)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of the page, and a run with the same thresholds."""
    if not PACKAGE.is_dir():
        pytest.skip(f"{PACKAGE} is missing: npm has not got ONNX Runtime for browsers")
    folder = tmp_path_factory.mktemp("web")
    done = run(
        "train.main",
        *("--config=configs/digits.py", "--config.num_epochs=2", f"--workdir={folder}/run"),
    )
    assert done.returncode == 0, done.stderr
    done = run(
        "train.export",
        *(f"--workdir={folder}/run", "--coverage=0.9", "--format=web", f"--out={folder}/site"),
        f"--onnxruntime_web={PACKAGE}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def server(made):
    server = Server(made / "site")
    yield server
    server.close()


@pytest.fixture
def pictures(tmp_path):
    """An empty folder, which the browser does not write to."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder


@pytest.fixture
def tab(tmp_path, server):
    with Tab(tmp_path / "profile") as tab:
        yield tab


@pytest.fixture
def ready(tab, server):
    """The tab with the page, when the classifier is loaded."""
    tab.open(server.address)
    assert tab.evaluate(STATE) == "ready"
    return tab


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


def trouble(tab):
    return tab.evaluate("document.getElementById('trouble').textContent")


def photographs(folder):
    """60 parts of three real photographs in many formats and orientations, each with a name."""
    generator = np.random.default_rng(0)
    with cbook.get_sample_data("grace_hopper.jpg") as file, Image.open(file) as portrait:
        real = [*map(Image.fromarray, load_sample_images().images), portrait.convert("RGB")]
    formats = [
        ("jpg", {"quality": 92}),
        ("jpg", {"quality": 80, "subsampling": 0}),
        ("png", {}),
        ("webp", {"lossless": True, "exact": True}),
    ]
    for number in range(NUM_PARTS):
        picture = real[number % len(real)]
        width, height = picture.size
        left, top = generator.integers(0, 300), generator.integers(0, 200)
        box = (
            left,
            top,
            generator.integers(left + 20, width),
            generator.integers(top + 20, height),
        )
        ending, options = formats[number % 4]
        exif = Image.Exif()
        # Each orientation in each format.
        exif[0x112] = 1 + number // 4 % 8
        part = picture.crop(box)
        if ending != "jpg" and number % 8 > 3:
            # Nearly transparent pixels keep their colours.
            part.putalpha(
                Image.fromarray(generator.integers(256, size=part.size[::-1], dtype=np.uint8))
            )
        part.save(folder / f"{number}.{ending}", exif=exif, **options)
    # Higher and wider than a tile.
    wide = real[0].resize((2100, 60))
    wide.putalpha(7)
    wide.save(folder / "wide.png")
    wide.rotate(90, expand=True).save(folder / "high.png")


def digits(folder):
    for number in range(NUM_DIGITS):
        pixels = (load_digits().images[-1 - number] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"digit {number}.png")


def test_the_sets_are_those_of_predict(made, ready, pictures):
    photographs(pictures)
    digits(pictures)
    done = run("train.predict", f"--workdir={made}/run", f"--images={pictures}", "--coverage=0.9")
    assert done.returncode == 0, done.stderr
    expected = {}
    for line in map(json.loads, done.stdout.splitlines()):
        expected[Path(line["path"]).name] = [one["class"] for one in line["set"]]
        give(ready, line["path"])
    assert dict(shown(ready)) == expected
    assert len(expected) == NUM_DIGITS + NUM_PARTS + 2
    assert trouble(ready) == ""
    title = ready.evaluate("document.getElementById('promise').textContent")
    assert "In 9 of 10 cases like those" in title


@pytest.mark.parametrize("vertical_first_ratio", [None, 2])
def test_pixels_are_those_of_pillow(ready, pictures, vertical_first_ratio):
    """For each way to resize, on photographs that are larger and smaller than the result."""
    if (int(PIL.__version__.split(".")[0]) >= 13) != (vertical_first_ratio is not None):
        pytest.skip("another version of Pillow resizes in that order")
    resampling = {**RESAMPLING, "vertical_first_ratio": vertical_first_ratio}
    resizings = [
        {"to": "middle_part", "size": [96, 64], "margin": 1.14, "resampling": resampling},
        {"to": "cover", "size": [50, 70], "resampling": resampling},
        {"to": "shorter_side", "side": 61, "resampling": resampling},
    ]
    grey = {"step": "grey", "weights": [19595, 38470, 7471], "bits": 16}
    crop = {"step": "crop", "size": [40, 48], "halves": "even"}
    photographs(pictures)
    ready.evaluate(
        "document.body.append(Object.assign(document.createElement('input'), "
        "{ type: 'file', id: 'probe' })); 1"
    )
    for number, path in enumerate(sorted(pictures.iterdir())):
        for index, resizing in enumerate(resizings):
            steps = [
                {"step": "decode"},
                *([{"step": "orient"}] if number % 3 else []),
                {"step": "resize", **resizing},
                *([crop] if index else []),
                *([grey] if number % 2 else []),
            ]
            ready.choose_file("probe", path)
            script = f"""import("./steps.js").then(async ({{ prepare }}) => {{
              const file = document.getElementById("probe").files[0];
              const image = await prepare(file, {json.dumps(steps)});
              return JSON.stringify([image.height, image.width, Array.from(image.data)]);
            }})"""
            height, width, data = json.loads(ready.evaluate(script))
            wanted = prepare(path.read_bytes(), steps)
            assert (height, width) == wanted.shape[:2]
            np.testing.assert_array_equal(np.reshape(data, wanted.shape), wanted, str(path))


def test_it_works_without_a_network(made, tmp_path, pictures):
    server = Server(made / "site")
    with Tab(tmp_path / "profile") as tab:
        tab.open(server.address)
        assert tab.evaluate(STATE) == "ready"
        # When the service worker has all files.
        tab.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        server.close()
        tab.open(server.address)
        assert tab.evaluate(STATE) == "ready"
        digits(pictures)
        give(tab, pictures / "digit 0.png")
        assert len(shown(tab)) == 1


def test_it_opens_by_its_file_where_that_is_redirected(made, tmp_path):
    with (
        contextlib.closing(Server(made / "site", WithoutIndex)) as server,
        Tab(tmp_path / "profile") as tab,
    ):
        tab.open(server.address)
        # When the service worker answers.
        tab.evaluate(f"{STATE}.then(() => navigator.serviceWorker.ready).then(() => 1)")
        tab.open(f"{server.address}index.html")
        assert tab.evaluate(STATE) == "ready"


def test_pages_of_one_server_have_stores_of_their_own(made, tmp_path):
    root = tmp_path / "root"
    for name in ("one", "two"):
        shutil.copytree(made / "site", root / name)
    keeper = root / "two" / "offline.js"
    keeper.write_text(keeper.read_text().replace('VERSION = "', 'VERSION = "another'))
    server = Server(root)
    with Tab(tmp_path / "profile") as tab:
        for name in ("one", "two"):
            tab.open(f"{server.address}{name}/")
            assert tab.evaluate(STATE) == "ready"
            tab.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        server.close()
        for name in ("one", "two"):
            tab.open(f"{server.address}{name}/")
            assert tab.evaluate(STATE) == "ready"


def test_a_browser_that_keeps_nothing_shows_the_sets(tab, server, pictures):
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="navigator.serviceWorker.register = () => Promise.reject(new Error('private'))",
    )
    tab.open(server.address)
    assert tab.evaluate(STATE) == "ready"
    digits(pictures)
    give(tab, pictures / "digit 0.png")
    assert len(shown(tab)) == 1
    assert trouble(tab) == ""
    assert tab.evaluate("document.getElementById('offline').textContent") == ""


def test_photographs_are_dropped_anywhere(ready):
    assert ready.keeps_page()


def test_nothing_is_asked_of_others(ready, server, pictures):
    digits(pictures)
    give(ready, pictures / "digit 0.png")
    asked = [
        event["params"]["request"]["url"]
        for event in ready.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith((server.address, "blob:", "data:")) for url in asked)
    problems = [
        event
        for event in ready.events
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
    ]
    assert problems == []
    refused = ready.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')")
    assert refused == "refused"


def test_from_a_file_it_says_what_to_do(tab, made):
    tab.open((made / "site" / "index.html").as_uri())
    assert "python3 -m http.server" in trouble(tab)
    assert tab.keeps_page()


def test_without_webassembly_it_says_so(tab, server):
    tab.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.WebAssembly")
    tab.open(server.address)
    assert "it lacks WebAssembly" in trouble(tab)


def test_it_goes_on_saying_that_the_classifier_is_missing(made, tmp_path, tab, pictures):
    folder = tmp_path / "site"
    shutil.copytree(made / "site", folder)
    (folder / site.MODEL).unlink()
    digits(pictures)
    with contextlib.closing(Server(folder)) as server:
        tab.open(server.address)
        assert tab.evaluate(STATE) == "trouble"
        tab.choose_file("files", pictures / "digit 0.png")
        assert "cannot be loaded: classifier.onnx: 404" in trouble(tab)


def test_what_is_no_photograph_is_named(ready, pictures):
    text = pictures / "text.jpg"
    text.write_text("no image")
    give(ready, text)
    assert trouble(ready) == "text.jpg cannot be read as an image."
    large = pictures / "large.jpg"
    Image.new("RGB", (10_000, 10_000), "green").save(large, quality=5)
    give(ready, large)
    assert "large.jpg has 100 megapixels. This page takes photographs of at most 50" in trouble(
        ready
    )
    # Each of several has its own line; the page goes on, and the message goes away.
    digits(pictures)
    give(ready, text, pictures / "digit 1.png", large)
    assert [line.split(" ")[0] for line in trouble(ready).splitlines()] == ["text.jpg", "large.jpg"]
    ready.evaluate("document.getElementById('remove').click()")
    give(ready, pictures / "digit 0.png")
    assert trouble(ready) == ""
    assert len(shown(ready)) == 1
    ready.evaluate("document.getElementById('remove').click()")
    assert shown(ready) == []


def draw(tab, *places):
    """Draws a line with the mouse, between places of the field from 0 to 1."""
    box = json.loads(
        tab.evaluate("JSON.stringify(document.getElementById('canvas').getBoundingClientRect())")
    )
    kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 2), "mouseReleased"]
    for kind, (x, y) in zip(kinds, places, strict=True):
        tab.call(
            "Input.dispatchMouseEvent",
            **{"type": kind, "button": "left", "buttons": 1, "clickCount": 1},
            x=box["left"] + x * box["width"],
            y=box["top"] + y * box["height"],
        )


def ask(tab):
    """Asks for the set of the drawing by the keyboard."""
    tab.evaluate("document.body.dataset.state = 'given'; document.getElementById('ask').focus()")
    tab.press("Enter")
    tab.evaluate(STATE)


def test_digits_are_drawn_anywhere_in_the_field(ready):
    """A one and a seven, each large, and small in a corner: the pictures of both are the same."""
    seven = [(0.2, 0.1), (0.8, 0.1), (0.4, 0.9)]
    for places in ([(0.5, 0.1), (0.5, 0.4), (0.5, 0.9)], seven):
        draw(ready, *places)
        ask(ready)
        draw(ready, *((x / 4, y / 4) for x, y in places))
        ask(ready)
    assert [name for name, _ in shown(ready)] == [f"drawing {number}" for number in (4, 3, 2, 1)]
    script = """JSON.stringify(Array.from(document.querySelectorAll(".card img"), (image) => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 224, height: 224 });
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      return Array.from(context.getImageData(0, 0, 224, 224).data);
    }))"""
    small_seven, seven, small_one, one = np.array(json.loads(ready.evaluate(script)))
    # In levels of 255, as a mean: a browser rounds the edges of lines in its own way.
    assert abs(small_seven - seven).mean() < 1
    assert abs(small_one - one).mean() < 1
    assert abs(seven - one).mean() > 20
    # The field is empty again.
    assert ready.evaluate("document.getElementById('ask').disabled")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone(tab, server, pictures, dark):
    tab.open(server.address, width=360, height=740, dark=dark)
    tab.evaluate(STATE)
    digits(pictures)
    for number in range(3):
        give(tab, pictures / f"digit {number}.png")
    # The latest answer is in the window, below what was asked with.
    card = "document.querySelector('.card').getBoundingClientRect()"
    assert tab.evaluate(f"0 <= {card}.top && {card}.bottom <= innerHeight")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    background = tab.screenshot()[-1, 0].mean()
    assert background < 60 if dark else background > 200


def colour_model():
    """Shares of red, green and blue as an ONNX file; a class in the set has a quarter."""
    constants = {
        "axes": np.array([1, 2]),
        "classes": np.array([1]),
        "quarter": np.array(0.25, np.float32),
        "dark": np.array(30, np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["images"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["numbers", "axes"], ["means"], keepdims=0),
            helper.make_node("ReduceSum", ["means", "classes"], ["sum"], keepdims=1),
            helper.make_node("Div", ["means", "sum"], ["probabilities"]),
            helper.make_node("Greater", ["probabilities", "quarter"], ["chosen"]),
            helper.make_node("ReduceMax", ["means", "classes"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", "dark"], ["none_of_these"]),
        ],
        "small",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 4, 4, 3])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("chosen", TensorProto.BOOL, ["n", 3]),
            helper.make_tensor_value_info("none_of_these", TensorProto.BOOL, ["n"]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()


@pytest.fixture
def opened(tab, tmp_path):
    """Opens the page of the classifier of colours, with more in its description."""
    with contextlib.ExitStack() as stack:

        def open_page(width=1280, height=900, rule=None, **described):
            steps = [{"step": "decode"}]
            images = {"images": {"shape": ["n", 4, 4, 3], "steps": steps}}
            described = {"classes": ["red", "green", "blue"]} | images | described
            described["rule"] = RULE | (rule or {})
            folder = tmp_path / "colours"
            site.write(folder, colour_model(), described, b"", runtime.read(str(PACKAGE)))
            server = stack.enter_context(contextlib.closing(Server(folder)))
            tab.open(server.address, width=width, height=height)
            assert tab.evaluate(STATE) == "ready"
            return tab

        yield open_page


def test_all_of_the_latest_answer_is_seen_on_a_phone(opened, pictures):
    """Also if it is taller than what the browser takes for a card before it is drawn."""
    names = [f"{colour} with a name that is too long for one line" for colour in ("red", "green")]
    tab = opened(width=360, height=740, classes=[*names, "blue " * 12])
    Image.new("RGB", (4, 4), (99, 99, 99)).save(pictures / "grey.png")
    for _ in range(3):
        give(tab, pictures / "grey.png")
        # The browser draws the card.
        tab.screenshot()
        assert len(shown(tab)[0][1]) == 3
        box = "JSON.stringify(document.querySelector('.card').getBoundingClientRect())"
        card = json.loads(tab.evaluate(box))
        assert card["height"] > 24 * 16
        assert card["top"] >= 0
        assert card["bottom"] <= 740


def test_several_photographs_of_one_thing(opened, pictures):
    tab = opened(rule={"promised": 0.95})
    together = """JSON.stringify([document.getElementById("together").hidden,
      document.getElementById("together-promise").textContent,
      Array.from(document.querySelectorAll("#in-all .name"), (one) => one.textContent)])"""
    colours = {
        "both": (100, 100, 0),
        "more green": (80, 100, 0),
        "green and blue": (0, 200, 100),
        "red": (200, 0, 0),
        "dark": (20, 0, 0),
    }
    found = {}
    for name, colour in colours.items():
        path = pictures / f"{name}.png"
        Image.new("RGB", (4, 4), colour).save(path)
        give(tab, path)
        found[name] = json.loads(tab.evaluate(together))
    assert [hidden for hidden, _, _ in found.values()] == [True, False, False, False, False]
    assert found["more green"][2] == ["green", "red"]
    # Each of two sets misses in at most 1 of 20 cases.
    assert "in at least 9 of 10 cases" in found["more green"][1]
    assert found["green and blue"][2] == ["green"]
    assert "in at least 17 of 20 cases" in found["green and blue"][1]
    assert found["red"][1:] == [
        "No class is in all of these sets: the photographs may show several things.",
        [],
    ]
    sizes = tab.evaluate("Array.from(document.querySelectorAll('.size'), (one) => one.textContent)")
    # The latest is first.
    assert sizes == ["1 class, or none of these", "1 class", "2 classes", "2 classes", "2 classes"]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"rule": {"promised": 0.9}}, "In 9 of 10 cases"),
        (
            {"rule": {"promised": 0.9}, "outputs": {"none_of_these": {}}},
            "or “none of these” if no such case",
        ),
        ({"rule": {"calibrated_on": {"examples": 9}}}, "Of the answers."),
        ({}, "They promise nothing."),
    ],
)
def test_the_page_says_what_is_promised(opened, described, words):
    tab = opened(**described)
    assert words in tab.evaluate("document.getElementById('promise').textContent")


def test_promises_are_in_small_numbers(ready):
    script = """import("./words.js").then(({ inCases, fill }) => JSON.stringify([
      inCases(0.9), inCases(0.95), inCases(0.99), inCases(1 - 3 * (1 - 0.95)),
      fill("{a} {b}", { a: 1 })]))"""
    found = json.loads(ready.evaluate(script))
    assert found == [
        {"times": 9, "of": 10},
        {"times": 19, "of": 20},
        {"times": 99, "of": 100},
        {"times": 17, "of": 20},
        "1 {b}",
    ]
