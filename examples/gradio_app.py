"""A page on this machine that shows the set of a photograph, for who has Python and an export.

    python -m examples.gradio_app species.onnx

Needs Gradio and what the script beside the export needs: `pip install gradio onnxruntime`, for a
file of StableHLO `pip install gradio flatbuffers jax`. It needs nothing of topk_jax: the script
makes the pixels. Gradio 6 needs a Pillow before 13, which rounds some of them otherwise: a class
whose probability is at its limit may be in another set. `train.export --format=web` writes a page
that computes in the browser.
"""

import runpy
import sys
from pathlib import Path

import gradio


def main(path: str) -> None:
    """Shows the page until Ctrl-C."""
    script = runpy.run_path(f"{path}.py")
    description, call = script["load"](Path(path))

    def answer(photograph):
        content = Path(photograph).read_bytes()
        pixels = script["prepare"](content, description["images"]["steps"])
        outputs = {name: rows[0] for name, rows in call(pixels[None]).items()}
        members = script["describe"](outputs, description["classes"])
        note = "It may be none of these classes." if members.get("none_of_these") else ""
        return {one["class"]: one["probability"] for one in members["set"]}, note

    # Any other mode has Gradio write the photograph again, with other pixels.
    photograph = gradio.Image(type="filepath", image_mode=None)
    label = gradio.Label(label=description["rule"]["in_words"])
    gradio.Interface(
        answer, photograph, [label, "text"], flagging_mode="never", analytics_enabled=False
    ).launch()


if __name__ == "__main__":
    main(*sys.argv[1:])
