// Pillow's bilinear filter with antialiasing, with the same integers: the same pixels as in training.
// docs/preparation.md of topk_jax describes it.

/** The first pixel and the weights of each new pixel of an axis. */
function weigh(length, from, to, size, bits) {
  const first = Math.fround(from);
  const scale = Math.fround(Math.fround(to) - first) / size;
  const reach = Math.max(scale, 1);
  const inverse = 1 / reach;
  const lows = new Int32Array(size);
  const weights = [];
  for (let i = 0; i < size; i++) {
    const centre = first + (i + 0.5) * scale;
    const low = Math.max(Math.trunc(centre - reach + 0.5), 0);
    const high = Math.min(Math.trunc(centre + reach + 0.5), length);
    const own = new Float64Array(high - low);
    let sum = 0;
    for (let j = 0; j < own.length; j++) {
      const distance = Math.abs((j + low - centre + 0.5) * inverse);
      own[j] = distance < 1 ? 1 - distance : 0;
      sum += own[j];
    }
    const rounded = new Int32Array(own.length);
    for (let j = 0; j < own.length; j++) {
      const share = sum === 0 ? own[j] : own[j] / sum;
      rounded[j] = Math.trunc(0.5 + share * 2 ** bits);
    }
    lows[i] = low;
    weights.push(rounded);
  }
  return { lows, weights };
}

const limited = (value) => (value < 0 ? 0 : value > 255 ? 255 : value);

/** The columns of an image of rows, with other widths. */
function acrossRows(image, { lows, weights }, bits) {
  const { width, height, channels, data } = image;
  const size = lows.length;
  const found = new Uint8Array(size * height * channels);
  const half = 2 ** (bits - 1);
  for (let row = 0; row < height; row++) {
    const start = row * width * channels;
    for (let i = 0; i < size; i++) {
      const own = weights[i];
      const first = start + lows[i] * channels;
      const target = (row * size + i) * channels;
      for (let channel = 0; channel < channels; channel++) {
        let sum = half;
        for (let j = 0, place = first + channel; j < own.length; j++, place += channels) {
          sum += data[place] * own[j];
        }
        found[target + channel] = limited(sum >> bits);
      }
    }
  }
  return { width: size, height, channels, data: found };
}

/** The rows of an image, with other heights. */
function downColumns(image, { lows, weights }, bits) {
  const { width, channels, data } = image;
  const size = lows.length;
  const line = width * channels;
  const found = new Uint8Array(line * size);
  const sums = new Int32Array(line);
  for (let i = 0; i < size; i++) {
    sums.fill(2 ** (bits - 1));
    for (let j = 0; j < weights[i].length; j++) {
      const weight = weights[i][j];
      const first = (lows[i] + j) * line;
      for (let place = 0; place < line; place++) sums[place] += data[first + place] * weight;
    }
    for (let place = 0; place < line; place++) found[i * line + place] = limited(sums[place] >> bits);
  }
  return { width, height: size, channels, data: found };
}

/** The part [left, top, right, bottom] of an image, of another size. */
export function resample(image, [width, height], [left, top, right, bottom], how) {
  const bits = how.weight_bits;
  const isWhole = (from, to, length, size) => from === 0 && to === length && size === length;
  const across = isWhole(left, right, image.width, width)
    ? null
    : weigh(image.width, left, right, width, bits);
  const down = isWhole(top, bottom, image.height, height)
    ? null
    : weigh(image.height, top, bottom, height, bits);
  const ratio = how.vertical_first_ratio;
  const downFirst =
    ratio !== null && image.height > height && image.height - height > ratio * (image.width - width);
  const passes = [
    (one) => (across === null ? one : acrossRows(one, across, bits)),
    (one) => (down === null ? one : downColumns(one, down, bits)),
  ];
  if (downFirst) passes.reverse();
  return passes.reduce((one, pass) => pass(one), image);
}
