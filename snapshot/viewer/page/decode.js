// Reads what the page carries: four bytes of length, a head of JSON, then columns of numbers.
"use strict";

const BEGIN = 0, END = 1, DONE = 2, GROW = 3, SHRINK = 4, OUT_OF_MEMORY = 5;
const FREE = 0, ALLOCATED = 1, PENDING = 2;

async function decode(text) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return readColumns(head, bytes.subarray(4 + length));
}

// Puts the numbers of every column into its place in the head.
function readColumns(value, bytes) {
  if (Array.isArray(value)) {
    if (value.length && typeof value[0] === "object") value.forEach((item, index) => { value[index] = readColumns(item, bytes); });
    return value;
  }
  if (value === null || typeof value !== "object") return value;
  if (typeof value.form === "string" && typeof value.offset === "number") {
    return FORMS[value.form](bytes.subarray(value.offset, value.offset + value.bytes), value.count);
  }
  for (const key of Object.keys(value)) if (key !== "settings") value[key] = readColumns(value[key], bytes);
  return value;
}

const FORMS = {
  octets: (bytes) => bytes,
  words: (bytes) => new BigUint64Array(bytes.slice().buffer),
  numbers(bytes, count) {
    const numbers = new Float64Array(count);
    for (let index = 0, at = 0; index < count; index++) {
      let byte = bytes[at++], number = byte & 127;
      for (let scale = 128; byte > 127; scale *= 128) {
        byte = bytes[at++];
        number += (byte & 127) * scale;
      }
      numbers[index] = number;
    }
    return numbers;
  },
  differences(bytes, count) {
    const numbers = FORMS.numbers(bytes, count);
    for (let index = 0, before = 0; index < count; index++) {
      const number = numbers[index];
      before += number % 2 ? -(number + 1) / 2 : number / 2;
      numbers[index] = before;
    }
    return numbers;
  },
};
