// Numbers as people read them.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  let unit = 0;
  for (; bytes >= 1023.95 && unit < UNITS.length - 1; unit++) bytes /= 1024;
  return `${bytes.toFixed(bytes < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

// The same without digits that say nothing.
function roundText(bytes) {
  return bytesText(bytes).replace(/\.0+ /, " ");
}

function countText(number) {
  return number.toLocaleString("en-GB");
}

function plural(number, noun) {
  return `${countText(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function shareText(part, whole) {
  if (!(whole > 0)) return "0 %";
  const share = (100 * part) / whole;
  return share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(share < 10 ? 1 : 0)} %`;
}

// Microseconds, with as many digits as `step` asks for, in the unit of the largest on the same axis.
function timeText(us, step = us / 1000, largest = Math.max(us, step)) {
  const [scale, unit] = largest >= 1e6 ? [1e6, "s"] : largest >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / scale || 1))));
  return `${(us / scale).toFixed(scale === 1 ? 0 : digits)} ${unit}`;
}

function addressText(address) {
  return `0x${address.toString(16).padStart(12, "0")}`;
}

function streamText(stream) {
  return stream === "0" ? "default stream" : `stream 0x${BigInt(stream).toString(16)}`;
}

// The last two parts of a path and the line.
function placeText(frame) {
  const [, file, line] = frame;
  const short = file.split("/").slice(-2).join("/");
  return line ? `${short}:${line}` : short;
}

// Round numbers between two bounds, at most `most` of them, in steps of 1, 2 or 5 (or of powers of two for bytes).
function ticks(from, to, most, binary) {
  const rough = (to - from) / most;
  let step = binary ? 2 ** Math.ceil(Math.log2(rough || 1)) : 10 ** Math.floor(Math.log10(rough || 1));
  if (!binary) step *= [1, 2, 5, 10].find((factor) => step * factor >= rough);
  const list = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) list.push(tick);
  return { step, list };
}
