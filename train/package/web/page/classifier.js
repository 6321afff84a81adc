// The classifier in ONNX Runtime, and its answers.
import * as ort from "./ort.wasm.bundle.min.js";
import { prepare } from "./prepare.js";

// Threads need headers that a static server does not send.
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

/** A file of the page, if its bytes are those that were exported with the page. */
async function read(name, integrity) {
  try {
    const answer = await fetch(name, { cache: "no-cache", integrity });
    return await (name.endsWith(".json") ? answer.json() : answer.arrayBuffer());
  } catch {
    const help = "Load the page again; if that does not help, copy its whole folder to the server again.";
    throw new Error(`${name} is missing, damaged or out of reach. ${help}`);
  }
}

export class Classifier {
  constructor(described, session) {
    this.described = described;
    this.session = session;
    this.shape = [1, ...described.images.shape.slice(1)];
  }

  /** The classifier of the page, whose description is shown before it can compute. */
  static async load(show) {
    const { model, description, engine } = document.body.dataset;
    const [described, content, binary] = await Promise.all([
      read("classifier.onnx.json", description),
      read("classifier.onnx", model),
      read("ort-wasm-simd-threaded.wasm", engine),
    ]);
    show(described);
    ort.env.wasm.wasmBinary = binary;
    const made = new Classifier(described, await ort.InferenceSession.create(content));
    // The first run prepares the memory.
    await made.run(new Uint8Array(made.shape.reduce((one, other) => one * other)));
    return made;
  }

  run(pixels) {
    return this.session.run({ images: new ort.Tensor("uint8", pixels, this.shape) });
  }

  /** An image file's picture, its set with the likeliest class first, and what is to say of it. */
  async answer(file) {
    const { data, picture, note } = await prepare(file, this.described.images.steps);
    const { probabilities, chosen, nodes, none_of_these: none } = await this.run(data);
    // Of equal probabilities, the first class comes first: sorts are stable.
    const order = Array.from(probabilities.data.keys());
    order.sort((one, other) => probabilities.data[other] - probabilities.data[one]);
    const { classes } = this.described;
    const member = (index) => ({ name: classes[index], probability: probabilities.data[index] });
    return {
      picture,
      note,
      set: order.filter((index) => chosen.data[index]).map(member),
      names: nodes ? this.names(nodes.data, probabilities.data) : [],
      likeliest: member(order[0]),
      none: Boolean(none?.data[0]),
    };
  }

  /** The nodes of the taxonomy that name the set, each with the sum of its classes. */
  names(chosen, probabilities) {
    const { names, parents } = this.described.taxonomy;
    const found = names.map((name) => ({ name, probability: 0, classes: 0 }));
    probabilities.forEach((probability, index) => {
      found[index].name = this.described.classes[index];
      // The root is its own parent.
      for (let node = index, child = -1; node !== child; child = node, node = parents[node]) {
        found[node].probability += probability;
        found[node].classes += 1;
      }
    });
    const named = found.filter((_, node) => chosen[node]);
    return named.sort((one, other) => other.probability - one.probability);
  }
}
