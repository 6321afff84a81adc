"""Sets for a folder of photographs with Ray Data, on one machine or on a cluster.

    python -m examples.predict_with_ray species.onnx photographs sets.jsonl

Needs Ray and what the script beside the export needs: `pip install 'ray[data]' onnxruntime`. The
export, the script, the description and the photographs are in a place that all machines see. Each
worker reads the export once. The line of a photograph is that of the script: its path and its set,
or why it cannot be read. The lines come in no order.
"""

import argparse
import json
import runpy
from pathlib import Path

import numpy as np
import ray.data

ENDINGS = ["avif", "bmp", "gif", "heic", "heif", "jpeg", "jpg", "png", "tif", "tiff", "webp"]
BATCH_SIZE = 64


class Classify:
    """Photographs to lines of JSON; a worker makes one of these."""

    def __init__(self, path: str):
        self.script = runpy.run_path(f"{path}.py")
        self.description, self.call = self.script["load"](Path(path))

    def __call__(self, batch):
        """Adds what is found of each photograph to its path."""
        lines = [{"path": path} for path in batch["path"].tolist()]
        pixels, readable = [], []
        for line, content in zip(lines, batch["bytes"], strict=True):
            try:
                pixels.append(self.script["prepare"](content, self.description["images"]["steps"]))
                readable.append(line)
            except Exception as error:  # A damaged image can make Pillow raise anything.
                line["error"] = self.script["why"](error)
        if readable:
            outputs = self.call(np.stack(pixels))
            for row, line in enumerate(readable):
                own = {name: values[row] for name, values in outputs.items()}
                line.update(self.script["describe"](own, self.description["classes"]))
        return {"line": [json.dumps(line) for line in lines]}


def main() -> None:
    """Writes the line of each photograph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="a file of train.export")
    parser.add_argument("photographs", help="the folder")
    parser.add_argument("out", type=Path, help="the file for the lines")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    photographs = ray.data.read_binary_files(
        arguments.photographs, include_paths=True, file_extensions=ENDINGS
    )
    lines = photographs.map_batches(
        Classify,
        fn_constructor_args=[str(Path(arguments.program).absolute())],
        batch_size=BATCH_SIZE,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=arguments.workers),
    )
    # It has its name when it is complete.
    part = arguments.out.with_name(f"{arguments.out.name}.part")
    with part.open("w") as file:
        file.writelines(f"{row['line']}\n" for row in lines.iter_rows())
    part.rename(arguments.out)


if __name__ == "__main__":
    main()
