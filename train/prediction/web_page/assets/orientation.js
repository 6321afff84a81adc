// Browsers turn photographs as EXIF says: some formats, some browsers, and none can be told not to. So
// what EXIF says is read here, and cut out of the file that the browser gets.

const text = (view, place, length) =>
  String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + place, length));

/** The orientation in a block of EXIF, from 1 to 8. */
function inExif(view) {
  try {
    const start = text(view, 0, 4) === "Exif" ? 6 : 0;
    const isLittle = text(view, start, 2) === "II";
    const first = start + view.getUint32(start + 4, isLittle);
    for (let number = 0; number < view.getUint16(first, isLittle); number++) {
      const entry = first + 2 + 12 * number;
      if (view.getUint16(entry, isLittle) === 0x112) {
        const found = view.getUint16(entry + 8, isLittle);
        return found >= 1 && found <= 8 ? found : 1;
      }
    }
  } catch {
    // Damaged metadata turn nothing.
  }
  return 1;
}

// Each finds the blocks of EXIF in a file: [start, end, start of EXIF].

function* inJpeg(view) {
  for (let place = 2; place + 4 <= view.byteLength && view.getUint8(place) === 0xff; ) {
    const marker = view.getUint8(place + 1);
    if (marker === 0xff) {
      place += 1;
      continue;
    }
    // The pixels begin.
    if (marker === 0xda) return;
    const end = place + 2 + view.getUint16(place + 2);
    const isExif = marker === 0xe1 && end <= view.byteLength && text(view, place + 4, 5) === "Exif\0";
    if (isExif) yield [place, end, place + 4];
    place = end;
  }
}

function* inPng(view) {
  for (let place = 8; place + 12 <= view.byteLength; ) {
    const end = place + 12 + view.getUint32(place);
    if (text(view, place + 4, 4) === "eXIf" && end <= view.byteLength) yield [place, end, place + 8];
    place = end;
  }
}

function* inWebp(view) {
  for (let place = 12; place + 8 <= view.byteLength; ) {
    const size = view.getUint32(place + 4, true);
    const end = place + 8 + size + (size % 2);
    if (text(view, place, 4) === "EXIF" && end <= view.byteLength) yield [place, end, place + 8];
    place = end;
  }
}

function finderFor(view) {
  if (view.byteLength < 16) return null;
  if (view.getUint16(0) === 0xffd8) return inJpeg;
  if (view.getUint32(0) === 0x89504e47) return inPng;
  if (text(view, 0, 4) === "RIFF" && text(view, 8, 4) === "WEBP") return inWebp;
  return null;
}

/** The file without its EXIF, and its orientation, from 1 to 8; null for one of another format. */
export async function separate(blob) {
  const view = new DataView(await blob.arrayBuffer());
  const find = finderFor(view);
  if (find === null) return null;
  let orientation = null;
  // No browser turns WebP, and its first block has the length of the file.
  const parts = [];
  let kept = 0;
  for (const [start, end, exif] of find(view)) {
    orientation ??= inExif(new DataView(view.buffer, exif, end - exif));
    parts.push(blob.slice(kept, start));
    kept = end;
  }
  parts.push(blob.slice(kept));
  const file = find === inWebp ? blob : new Blob(parts, { type: blob.type });
  return { file, orientation: orientation ?? 1 };
}

/** An image, turned and mirrored so that one with this orientation is upright. */
export function turn(image, orientation) {
  if (orientation === 1) return image;
  const { width, height, channels, data } = image;
  const isTransposed = orientation > 4;
  const [across, down] = isTransposed ? [height, width] : [width, height];
  // Where the pixel of a column and a row comes from.
  const mirrorsColumns = [2, 3, 7, 8].includes(orientation);
  const mirrorsRows = [3, 4, 6, 7].includes(orientation);
  const found = new Uint8Array(data.length);
  let to = 0;
  for (let row = 0; row < down; row++) {
    for (let column = 0; column < across; column++) {
      let [x, y] = isTransposed ? [row, column] : [column, row];
      if (mirrorsColumns) x = width - 1 - x;
      if (mirrorsRows) y = height - 1 - y;
      const from = (y * width + x) * channels;
      for (let channel = 0; channel < channels; channel++) found[to++] = data[from + channel];
    }
  }
  return { width: across, height: down, channels, data: found };
}
