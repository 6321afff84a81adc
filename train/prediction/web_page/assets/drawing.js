// A field to draw in: white on black, as the examples of scanned characters are.

// Of a line, as a share of the field.
const THICKNESS = 1 / 7;

function prepare(canvas) {
  const context = canvas.getContext("2d");
  context.fillStyle = "#000";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.strokeStyle = "#fff";
  context.lineCap = context.lineJoin = "round";
  context.lineWidth = canvas.width * THICKNESS;
  return context;
}

function trace(context, line) {
  context.beginPath();
  context.moveTo(...line[0]);
  for (const place of line) context.lineTo(...place);
  context.stroke();
}

/** The drawing as large as the field allows, and in its middle: so are examples of scanned characters. */
function filled(lines, size) {
  const picture = document.createElement("canvas");
  picture.width = picture.height = size;
  const context = prepare(picture);
  const low = [Infinity, Infinity];
  const high = [-Infinity, -Infinity];
  for (const place of lines.flat()) {
    for (const axis of [0, 1]) {
      low[axis] = Math.min(low[axis], place[axis]);
      high[axis] = Math.max(high[axis], place[axis]);
    }
  }
  // A point has no length.
  const length = Math.max(high[0] - low[0], high[1] - low[1], 1);
  const scale = (size - context.lineWidth) / length;
  const moved = (place) => place.map((one, axis) => (one - (low[axis] + high[axis]) / 2) * scale + size / 2);
  for (const line of lines) trace(context, line.map(moved));
  return picture;
}

/** Calls `give` with a picture of the drawing, and its number, when `ask` is pressed; then the field is empty. */
export function listen(canvas, ask, clear, give) {
  let context;
  let lines;
  let isDrawing = false;
  let number = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * canvas.width) / box.width,
      ((event.clientY - box.top) * canvas.height) / box.height,
    ];
  };
  const empty = () => {
    context = prepare(canvas);
    lines = [];
    isDrawing = false;
    ask.disabled = true;
  };
  empty();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    lines.push([place(event)]);
    trace(context, lines.at(-1));
    isDrawing = true;
    ask.disabled = false;
  });
  const draw = (event) => {
    if (!isDrawing) return;
    // A browser reports several places at once, and a busy one many.
    const events = event.getCoalescedEvents?.() ?? [];
    const more = (events.length > 0 ? events : [event]).map(place);
    trace(context, [lines.at(-1).at(-1), ...more]);
    lines.at(-1).push(...more);
  };
  canvas.addEventListener("pointermove", draw);
  canvas.addEventListener("pointerup", draw);
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, () => (isDrawing = false));
  }
  clear.addEventListener("click", empty);
  ask.addEventListener("click", () => {
    filled(lines, canvas.width).toBlob((blob) => give(blob, ++number), "image/png");
    empty();
  });
}
