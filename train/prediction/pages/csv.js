"use strict";
// Tables as texts. A cell that starts like a formula of a spreadsheet gets an apostrophe before it,
// which is dropped again by whoever reads the table here or in the program.

function toCsv(rows) {
  const cell = (text) => {
    const plain = /^'*[=+\-@]/.test(text) ? `'${text}` : text;
    return /[",;\t\r\n]|^\s|\s$/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  // The mark of byte order lets a spreadsheet know that this is UTF-8.
  return "\ufeff" + rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

function fromCsv(text) {
  // A spreadsheet may put something else between the columns.
  const header = text.split(/[\r\n]/, 1)[0];
  const between = [",", ";", "\t"].find((one) => header.includes(one)) ?? ",";
  const cell = new RegExp(
    `(?:"((?:[^"]|"")*)"|([^${between}\r\n]*))(${between}|\r\n|\r|\n|$)`, "gy",
  );
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(cell)) {
    const content = quoted === undefined ? plain : quoted.replaceAll('""', '"');
    rows.at(-1).push(content.replace(/^'(?='*[=+\-@])/, ""));
    if (end === "") break;
    if (end !== between) rows.push([]);
  }
  return rows.filter((row) => row.some((content) => content !== ""));
}
