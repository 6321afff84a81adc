// The steps from an image file to the input of the classifier, as classifier.json has them.
import { separate, turn } from "./orientation.js";
import { toColours } from "./pixels.js";
import { resample } from "./resampling.js";

// Browsers have no canvas for more, and phones have no memory.
export const MOST_PIXELS = 50e6;

export class Refused extends Error {
  constructor(word, values = {}) {
    super(word);
    this.word = word;
    this.values = values;
  }
}

/** Width and height of a file, before its pixels are made. */
async function sizeOf(blob) {
  const image = new Image();
  const address = URL.createObjectURL(blob);
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Refused("not_an_image"));
      image.src = address;
    });
    return [image.naturalWidth, image.naturalHeight];
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** The pixels of a file: red, green and blue. */
async function decode(blob, upright) {
  const [across, down] = await sizeOf(blob);
  if (across * down > MOST_PIXELS) {
    // Upwards: it is never the number that may be.
    const pixels = Math.ceil((across * down) / 1e5) / 10;
    throw new Refused("too_large", { pixels, most: MOST_PIXELS / 1e6 });
  }
  const separated = await separate(blob);
  // Without a colour profile, and without a product of colours and opacity.
  const asStored = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
  let bitmap;
  try {
    bitmap = await createImageBitmap(separated?.file ?? blob, { imageOrientation: "from-image", ...asStored });
  } catch {
    throw new Refused("not_an_image");
  }
  const image = await toColours(bitmap, asStored);
  bitmap.close();
  return turn(image, upright ? (separated?.orientation ?? 1) : 1);
}

function grey(image, { weights, bits }) {
  const { width, height, data } = image;
  const found = new Uint8Array(width * height);
  for (let from = 0, to = 0; to < found.length; from += 3, to++) {
    const sum = data[from] * weights[0] + data[from + 1] * weights[1] + data[from + 2] * weights[2];
    found[to] = (sum + 2 ** (bits - 1)) >> bits;
  }
  return { width, height, channels: 1, data: found };
}

/** To the nearest integer, halves to the even one. */
function round(number) {
  const below = Math.floor(number);
  const rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

function resize(image, step) {
  const { width, height } = image;
  let box = [0, 0, width, height];
  let size = step.size;
  if (step.to === "shorter_side") {
    const longer = Math.trunc((step.side * Math.max(width, height)) / Math.min(width, height));
    size = width <= height ? [step.side, longer] : [longer, step.side];
  } else {
    const scale = (step.margin ?? 1) * Math.max(size[0] / width, size[1] / height);
    if (step.to === "cover") {
      size = [Math.max(size[0], round(width * scale)), Math.max(size[1], round(height * scale))];
    } else if (size[0] !== width || size[1] !== height) {
      const [across, down] = [size[0] / scale, size[1] / scale];
      const [left, top] = [(width - across) / 2, (height - down) / 2];
      box = [left, top, left + across, top + down];
    }
  }
  return resample(image, size, box, step.resampling);
}

function crop(image, step) {
  const [width, height] = step.size;
  const rounded = step.halves === "down" ? Math.floor : round;
  const left = rounded((image.width - width) / 2);
  const top = rounded((image.height - height) / 2);
  if (left < 0 || top < 0) throw new Refused("too_small");
  const { channels } = image;
  const data = new Uint8Array(width * height * channels);
  for (let row = 0; row < height; row++) {
    const start = ((top + row) * image.width + left) * channels;
    data.set(image.data.subarray(start, start + width * channels), row * width * channels);
  }
  return { width, height, channels, data };
}

/** The pixels of an image file after all steps: { width, height, channels, data }. */
export async function prepare(blob, steps) {
  const upright = steps.some((one) => one.step === "orient");
  let image = null;
  for (const one of steps) {
    if (one.step === "decode") image = await decode(blob, upright);
    else if (one.step === "grey") image = grey(image, one);
    else if (one.step === "resize") image = resize(image, one);
    else if (one.step === "crop") image = crop(image, one);
    else if (one.step !== "orient") throw new Error(`no such step: ${one.step}`);
  }
  return image;
}
