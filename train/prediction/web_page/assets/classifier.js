// The classifier in ONNX Runtime.
import * as ort from "./onnxruntime/ort.wasm.bundle.min.js";
import { prepare } from "./steps.js";

ort.env.wasm.wasmPaths = {
  wasm: new URL("./onnxruntime/ort-wasm-simd-threaded.wasm", import.meta.url).href,
};
// Threads need headers that a static server does not send.
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

/** Bytes of a file, in parts that are reported. */
async function download(address, report) {
  const answer = await fetch(address, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  const all = Number(answer.headers.get("Content-Length")) || 0;
  const parts = [];
  let done = 0;
  const reader = answer.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    done += part.value.length;
    report(done, Math.max(all, done));
  }
  const bytes = new Uint8Array(done);
  let place = 0;
  for (const part of parts) {
    bytes.set(part, place);
    place += part.length;
  }
  return bytes;
}

export class Classifier {
  constructor(described, session) {
    this.described = described;
    this.session = session;
    this.shape = described.images.shape.slice(1);
  }

  static async load(described, report) {
    const bytes = await download("classifier.onnx", report);
    const session = await ort.InferenceSession.create(bytes, { graphOptimizationLevel: "all" });
    const found = new Classifier(described, session);
    // The first run prepares the memory.
    const size = found.shape.reduce((one, other) => one * other, 1);
    await found.run(new Uint8Array(size));
    return found;
  }

  async run(pixels) {
    return this.session.run({ images: new ort.Tensor("uint8", pixels, [1, ...this.shape]) });
  }

  /** The set of an image file: the likeliest class first. */
  async answer(file) {
    const outputs = await this.run((await prepare(file, this.described.images.steps)).data);
    const probabilities = outputs.probabilities.data;
    const order = Array.from(probabilities.keys());
    // Of equal probabilities, the first class comes first: sorts are stable.
    order.sort((one, other) => probabilities[other] - probabilities[one]);
    const member = (index) => ({
      index,
      name: this.described.classes[index],
      probability: probabilities[index],
    });
    return {
      set: order.filter((index) => outputs.chosen.data[index]).map(member),
      likeliest: member(order[0]),
      none: outputs.none_of_these ? Boolean(outputs.none_of_these.data[0]) : false,
    };
  }
}
