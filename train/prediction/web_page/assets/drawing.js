// A field to draw in: white on black, as the examples of scanned characters are.

/** Calls `give` with a picture of the drawing, and its number, when `ask` is pressed. */
export function listen(canvas, ask, clear, give) {
  const context = canvas.getContext("2d");
  let number = 0;
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * canvas.width) / box.width,
      ((event.clientY - box.top) * canvas.height) / box.height,
    ];
  };
  const empty = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
  };
  empty();
  context.strokeStyle = "#fff";
  context.lineCap = context.lineJoin = "round";
  context.lineWidth = canvas.width / 9;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...last);
    context.stroke();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last === null) return;
    context.beginPath();
    context.moveTo(...last);
    last = place(event);
    context.lineTo(...last);
    context.stroke();
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, () => (last = null));
  }
  clear.addEventListener("click", empty);
  ask.addEventListener("click", () => canvas.toBlob((blob) => give(blob, ++number), "image/png"));
}
