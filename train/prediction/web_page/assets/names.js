// Names as rows of characters, as in training.

// What separates words in Python.
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

// What cannot be seen alone, as `names.is_visible` in Python, and what of \p{Cf} is drawn.
const DRAWN = /[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]/u;
const UNSEEN = /^[\p{Mn}\p{Me}\p{Z}\p{Cc}\p{Cf}\p{DI}\u2800\u{1d159}]*$/u;

/** Whether a name has a character that can be seen. */
export const isVisible = (name) => DRAWN.test(name) || !UNSEEN.test(name);

/** The code points of a name, and zeros after its end. */
export function toRow(name, length, folding) {
  const folded = Array.from(name.normalize("NFKC"), (one) => folding[one] ?? one).join("");
  const words = folded.normalize("NFKC").split(SPACES).filter(Boolean);
  const characters = Array.from(words.join(" ")).slice(0, length);
  if (characters.at(-1) === " ") characters.pop();
  const row = new Int32Array(length);
  characters.forEach((one, place) => (row[place] = one.codePointAt(0)));
  return row;
}
