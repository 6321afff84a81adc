// The pixels of a decoded image: red, green and blue.

// All canvases and textures may have this size: phones limit the area of the one and the sides of the other.
const TILE = 2048;

/** Colours and opacities by a canvas, which loses the colours of pixels with little opacity. */
function readCanvas(context, tile) {
  context.clearRect(0, 0, TILE, TILE);
  context.drawImage(tile, 0, 0);
  return context.getImageData(0, 0, tile.width, tile.height).data;
}

/** Colours and opacities as the file has them, by WebGL; null if it fails. */
function readTexture(gl, tile) {
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, tile);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  const found = new Uint8Array(4 * tile.width * tile.height);
  gl.readPixels(0, 0, tile.width, tile.height, gl.RGBA, gl.UNSIGNED_BYTE, found);
  gl.deleteTexture(texture);
  return gl.getError() === gl.NO_ERROR ? found : null;
}

/** A context of WebGL that reads textures; null where the browser lacks it. */
function makeReader() {
  const gl = document.createElement("canvas").getContext("webgl");
  gl?.pixelStorei(gl.UNPACK_COLORSPACE_CONVERSION_WEBGL, gl.NONE);
  gl?.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  return gl;
}

function isOpaque(pixels) {
  for (let place = 3; place < pixels.length; place += 4) if (pixels[place] !== 255) return false;
  return true;
}

/** The colours of a bitmap: { width, height, channels, data }. */
export async function toColours(bitmap, asStored) {
  const { width, height } = bitmap;
  const data = new Uint8Array(width * height * 3);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = TILE;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  // Most images are opaque. There are few contexts of WebGL for a page.
  let gl;
  for (let top = 0; top < height; top += TILE) {
    for (let left = 0; left < width; left += TILE) {
      const across = Math.min(TILE, width - left);
      const down = Math.min(TILE, height - top);
      const tile = await createImageBitmap(bitmap, left, top, across, down, asStored);
      let pixels = readCanvas(context, tile);
      if (!isOpaque(pixels)) {
        gl ??= makeReader();
        pixels = (gl && readTexture(gl, tile)) ?? pixels;
      }
      tile.close();
      for (let row = 0, from = 0; row < down; row++) {
        let to = 3 * ((top + row) * width + left);
        for (let column = 0; column < across; column++, from += 4) {
          for (let channel = 0; channel < 3; channel++) data[to++] = pixels[from + channel];
        }
      }
    }
  }
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  canvas.width = canvas.height = 0;
  return { width, height, channels: 3, data };
}
