"""The steps of a description, from decoded pixels to those of a network, with NumPy only.

A program in another language can do the same: `train.data.steps` has these formulas in words.
"""

import math

import numpy as np


def prepare(pixels, steps, orientation=1):
    """The pixels [height, width, 3 or 1] of a decoded image [h, w, 3], uint8 both.

    Args:
        pixels: the image in RGB.
        steps: the steps of the description.
        orientation: what the EXIF data say, from 1 to 8.
    """
    for step in steps:
        name = step["step"]
        if name == "orient":
            pixels = orient(pixels, orientation)
        elif name == "grey":
            sums = pixels.astype(np.int64) @ np.array(step["weights"]) + 2 ** (step["bits"] - 1)
            pixels = (sums >> step["bits"]).astype(np.uint8)[..., None]
        elif name == "resize":
            pixels = resize(pixels, step)
        elif name == "crop":
            pixels = crop(pixels, step)
    return pixels


def orient(pixels, orientation):
    """The image as it was seen: mirrored and rotated."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def half_even(number):
    """The nearest integer; the even one for a half."""
    down = math.floor(number)
    if number - down == 0.5:
        return down + down % 2
    return math.floor(number + 0.5)


def resize(pixels, step):
    h, w = pixels.shape[:2]
    box = (0.0, 0.0, float(w), float(h))
    if step["to"] == "shorter_side":
        side = step["side"]
        size = (side, side * h // w) if w <= h else (side * w // h, side)
    elif step["to"] == "cover":
        width, height = step["size"]
        scale = max(width / w, height / h)
        size = (max(width, half_even(w * scale)), max(height, half_even(h * scale)))
    else:
        width, height = size = tuple(step["size"])
        if size != (w, h):
            scale = step["margin"] * max(width / w, height / h)
            left, top = 0.5 * (w - width / scale), 0.5 * (h - height / scale)
            box = (left, top, left + width / scale, top + height / scale)
    return resample(pixels, size, box, step["resampling"])


def crop(pixels, step):
    width, height = step["size"]
    room = pixels.shape[1] - width, pixels.shape[0] - height
    left, top = (one // 2 if step["halves"] == "down" else half_even(one / 2) for one in room)
    return pixels[top : top + height, left : left + width]


def resample(pixels, size, box, numbers):
    """The part of an image inside a box (left, top, right, bottom) with another size."""
    h, w = pixels.shape[:2]
    ratio = numbers["vertical_first_ratio"]
    rows_first = ratio is None or h <= size[1] or h - size[1] <= ratio * (w - size[0])
    for axis in (1, 0) if rows_first else (0, 1):
        place = 1 - axis
        length, first, last = (w, h)[place], box[place], box[place + 2]
        if (first, last, size[place]) != (0, length, length):
            pixels = along(pixels, axis, first, last, size[place], numbers["weight_bits"])
    return pixels


def along(pixels, axis, first, last, size, bits):
    """One axis resized with a triangle filter, in integers."""
    length = pixels.shape[axis]
    first, last = np.float32(first), np.float32(last)
    scale = float(last - first) / size
    reach = max(scale, 1.0)
    lines = []
    for place in range(size):
        centre = float(first) + (place + 0.5) * scale
        low = max(int(centre - reach + 0.5), 0)
        high = min(int(centre + reach + 0.5), length)
        weights = [
            max(0.0, 1 - abs((index - centre + 0.5) * (1 / reach))) for index in range(low, high)
        ]
        total = 0.0
        for weight in weights:
            total += weight
        whole = np.array([int(weight / total * 2**bits + 0.5) for weight in weights])
        part = pixels.take(range(low, high), axis).astype(np.int64)
        sums = np.tensordot(whole, part, (0, axis)) + 2 ** (bits - 1)
        lines.append(np.clip(sums >> bits, 0, 255))
    return np.stack(lines, axis).astype(np.uint8)
