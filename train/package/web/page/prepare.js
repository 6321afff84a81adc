// From an image file to the input of the classifier: the steps of its description. The pixels are
// those that train.data.steps makes with Pillow; its docstring describes each step.

// Browsers have no canvas for more, and phones have no memory.
const MOST_MEGAPIXELS = 50;
// Phones limit the area of a canvas.
const TILE = 2048;
const LOSES_COLOURS =
  "It has transparent pixels, whose colours a browser loses: another program may find another set.";
const IS_NOT_TURNED = "A browser does not turn a WebP file as its EXIF says: is it upright here?";

/** The picture of a file; its size is known before its pixels are made. */
async function open(file) {
  const picture = new Image();
  await new Promise((resolve, reject) => {
    picture.onload = resolve;
    picture.onerror = () => reject(new Error("this browser cannot read it as an image."));
    picture.src = URL.createObjectURL(file);
  });
  const megapixels = (picture.naturalWidth * picture.naturalHeight) / 1e6;
  if (megapixels > MOST_MEGAPIXELS) {
    const most = `at most ${MOST_MEGAPIXELS} are possible: make it smaller.`;
    throw new Error(`it has ${megapixels.toFixed(1)} megapixels; ${most}`);
  }
  return picture;
}

/** The colours of a file, turned as its EXIF orientation says, and what is to say of them. */
async function decode(file) {
  // Without a conversion by a colour profile.
  const asStored = { imageOrientation: "from-image", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(file, asStored);
  const { width, height } = bitmap;
  const data = new Uint8Array(width * height * 3);
  const canvas = document.createElement("canvas");
  canvas.width = Math.min(TILE, width);
  canvas.height = Math.min(TILE, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let isOpaque = true;
  for (let top = 0; top < height; top += TILE) {
    for (let left = 0; left < width; left += TILE) {
      const [across, down] = [Math.min(TILE, width - left), Math.min(TILE, height - top)];
      context.clearRect(0, 0, TILE, TILE);
      context.drawImage(bitmap, left, top, across, down, 0, 0, across, down);
      const pixels = context.getImageData(0, 0, across, down).data;
      for (let row = 0, from = 0; row < down; row++) {
        let to = 3 * ((top + row) * width + left);
        for (let column = 0; column < across; column++, from += 4) {
          data[to++] = pixels[from];
          data[to++] = pixels[from + 1];
          data[to++] = pixels[from + 2];
          isOpaque &&= pixels[from + 3] === 255;
        }
      }
    }
  }
  bitmap.close();
  const head = new Uint8Array(await file.slice(0, 32).arrayBuffer());
  const text = String.fromCharCode(...head);
  if (text.startsWith("\x89PNG") && head[24] === 16 && data.every((value) => value < 16)) {
    throw new Error("it is nearly black: scale its values to all 16 bits, or save it with 8 bits.");
  }
  // The bit that says that EXIF follows.
  const hasExif = text.startsWith("WEBPVP8X", 8) && head[20] & 8;
  const notes = [isOpaque ? "" : LOSES_COLOURS, hasExif ? IS_NOT_TURNED : ""];
  return { width, height, channels: 3, data, note: notes.join(" ").trim() };
}

function grey({ width, height, data }, { weights, bits }) {
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
  const { channels } = image;
  const data = new Uint8Array(width * height * channels);
  for (let row = 0; row < height; row++) {
    const start = ((top + row) * image.width + left) * channels;
    data.set(image.data.subarray(start, start + width * channels), row * width * channels);
  }
  return { width, height, channels, data };
}

/** The first pixel and the weights, integers, of each new pixel of an axis. */
function weigh(length, from, to, size, bits) {
  const first = Math.fround(from);
  const scale = Math.fround(Math.fround(to) - first) / size;
  const reach = Math.max(scale, 1);
  const inverse = 1 / reach;
  return Array.from({ length: size }, (_, index) => {
    const centre = first + (index + 0.5) * scale;
    const low = Math.max(Math.trunc(centre - reach + 0.5), 0);
    const high = Math.min(Math.trunc(centre + reach + 0.5), length);
    const shares = new Float64Array(high - low);
    shares.forEach((_, place) => {
      shares[place] = Math.max(1 - Math.abs((place + low - centre + 0.5) * inverse), 0);
    });
    const sum = shares.reduce((one, other) => one + other, 0) || 1;
    const weights = Int32Array.from(shares, (share) => Math.trunc(0.5 + (share / sum) * 2 ** bits));
    return { low, weights };
  });
}

const limited = (value) => (value < 0 ? 0 : value > 255 ? 255 : value);

/** An image of another width. */
function acrossRows({ width, height, channels, data }, axis, bits) {
  const found = new Uint8Array(axis.length * height * channels);
  for (let row = 0, to = 0; row < height; row++) {
    for (const { low, weights } of axis) {
      for (let channel = 0; channel < channels; channel++, to++) {
        let sum = 2 ** (bits - 1);
        let from = (row * width + low) * channels + channel;
        for (let place = 0; place < weights.length; place++, from += channels) {
          sum += data[from] * weights[place];
        }
        found[to] = limited(sum >> bits);
      }
    }
  }
  return { width: axis.length, height, channels, data: found };
}

/** An image of another height. */
function downColumns({ width, channels, data }, axis, bits) {
  const line = width * channels;
  const found = new Uint8Array(line * axis.length);
  const sums = new Int32Array(line);
  axis.forEach(({ low, weights }, row) => {
    sums.fill(2 ** (bits - 1));
    weights.forEach((weight, place) => {
      const from = (low + place) * line;
      for (let column = 0; column < line; column++) sums[column] += data[from + column] * weight;
    });
    for (let column = 0; column < line; column++) {
      found[row * line + column] = limited(sums[column] >> bits);
    }
  });
  return { width, height: axis.length, channels, data: found };
}

/** A part of an image, of another size, by the integers of Pillow's bilinear filter. */
function resample(image, [width, height], [left, top, right, bottom], how) {
  const { weight_bits: bits, vertical_first_ratio: ratio } = how;
  const isSame = (from, to, length, size) => from === 0 && to === length && size === length;
  const passes = [];
  if (!isSame(left, right, image.width, width)) {
    const axis = weigh(image.width, left, right, width, bits);
    passes.push((one) => acrossRows(one, axis, bits));
  }
  if (!isSame(top, bottom, image.height, height)) {
    const axis = weigh(image.height, top, bottom, height, bits);
    passes.push((one) => downColumns(one, axis, bits));
  }
  const lost = image.height - height;
  if (ratio !== null && lost > 0 && lost > ratio * (image.width - width)) passes.reverse();
  return passes.reduce((one, pass) => pass(one), image);
}

const STEPS = { grey, resize, crop };

/** The pixels of an image file after all steps, its picture, and what is to say of it. */
export async function prepare(file, steps) {
  const picture = await open(file);
  // The browser does both at once.
  const [first, second, ...others] = steps.map(({ step }) => step);
  if (first !== "decode" || second !== "orient" || !others.every((step) => step in STEPS)) {
    throw new Error("the page does not know the steps of its preparation.");
  }
  const decoded = await decode(file);
  const image = steps.slice(2).reduce((one, step) => STEPS[step.step](one, step), decoded);
  return { ...image, picture, note: decoded.note };
}
