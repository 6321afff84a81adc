// Texts with places for values, such as "{number} classes".

export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** A share as "9 of 10": the smallest numbers that are no more than it. */
export function inCases(share) {
  for (const of of [10, 20, 50, 100, 1000]) {
    const times = Math.round(share * of);
    if (times < of && Math.abs(times / of - share) < 1e-9) return { times, of };
  }
  return { times: Math.floor(share * 1000), of: 1000 };
}
