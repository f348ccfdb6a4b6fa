// The columns of the report, out of the script elements that carry them.

const content = JSON.parse(document.getElementById("content").textContent);
const chosenRecord = Math.min(content.records.length - 1, Number(new URLSearchParams(location.hash.slice(1)).get("record")) || 0);
const { about, advice: advices } = content.records[chosenRecord];
const tables = {};

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };

async function unpack() {
  const text = document.getElementById("data").textContent;
  const squeezed = await (await fetch("data:application/octet-stream;base64," + text)).blob();
  const bytes = await new Response(squeezed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  for (const [full, columns] of Object.entries(content.columns)) {
    const [, number, name] = /^(?:(\d+) )?(.*)$/.exec(full);
    if (number !== undefined && Number(number) !== chosenRecord) continue;
    const table = { length: 0, numbers: {}, words: {} };
    for (const [key, column] of Object.entries(columns)) {
      table.numbers[key] = new ARRAYS[column.kind](bytes, column.offset, column.length);
      if (column.words) table.words[key] = column.words;
      table.length = column.length;
    }
    tables[name] = table;
  }
}

// A column as numbers, and one cell of it as a number or as text.
const numbers = (table, column) => tables[table].numbers[column];
function cell(table, column, row) {
  const own = tables[table];
  const value = own.numbers[column][row];
  return own.words[column] ? own.words[column][value] : value;
}

// For each number below `count`, the rows of a table whose column holds it.
const grouped = {};
function rowsBy(table, column, count) {
  const key = table + "/" + column;
  if (!grouped[key]) {
    const keys = numbers(table, column);
    const starts = new Uint32Array(count + 1);
    for (let row = 0; row < keys.length; row++) starts[keys[row] + 1]++;
    for (let k = 0; k < count; k++) starts[k + 1] += starts[k];
    const rows = new Uint32Array(keys.length);
    const next = starts.slice();
    for (let row = 0; row < keys.length; row++) rows[next[keys[row]]++] = row;
    grouped[key] = { starts, rows };
  }
  const { starts, rows } = grouped[key];
  return (k) => rows.subarray(starts[k], starts[k + 1]);
}

const whole = (number) => Math.round(number).toLocaleString("en");
function percent(part, all) {
  return all ? ((100 * part) / all).toFixed(1) + "%" : "0.0%";
}
