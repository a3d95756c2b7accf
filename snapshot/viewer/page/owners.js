// Who holds memory: allocations grouped by where they were made, by metadata, by pool or by stream.

const MODES = { innermost: "innermost call", outermost: "outermost call", metadata: "metadata", pool: "pool", stream: "stream" };

// Frames of interpreters, libraries and toolchains are never the owner.
const FOREIGN = /site-packages|dist-packages|\/lib\/python|^<|^\?\?|\/rustc\/|\/\.cargo\/|^$/;
const PYTHON = /\.py$/;
// A place in an object file, or an address.
const UNNAMED = /(^|\+)0x[0-9a-f]+$|^$/;

function isOwn(frame) {
  return !FOREIGN.test(frame[1]);
}

class Owners {
  constructor(device, mode) {
    const keys = Owners.#keys(device, mode);
    const places = [];
    this.of = new Uint32Array(keys.length);
    this.list = [];
    for (let number = 0; number < keys.length; number++) {
      const key = keys[number];
      let place = places[key];
      if (place === undefined) {
        places[key] = place = this.list.length;
        this.list.push({ ...Owners.#words(device, mode, key), place });
      }
      this.of[number] = place;
    }
    this.#rank(device);
  }

  // A number for the owner of each allocation; zero if it is unknown.
  static #keys(device, mode) {
    if (mode !== "innermost" && mode !== "outermost") return device.allocations[mode];
    const frames = ownerFrames(device.head, mode);
    const { stack } = device.allocations, keys = new Uint32Array(stack.length);
    for (let number = 0; number < keys.length; number++) keys[number] = frames[stack[number]];
    return keys;
  }

  static #words(device, mode, key) {
    if (mode === "pool") return { name: device.poolText(key), where: "" };
    if (mode === "stream") return { name: device.streamText(key), where: "" };
    if (mode === "metadata") return { name: device.text(key) || "No metadata", where: "" };
    if (!key) return { name: "No stack recorded", where: "" };
    const frame = device.head.frames[key - 1];
    return { name: frame[0] || "unnamed", where: placeText(frame) };
  }

  // The one that ever held the most has rank zero. The steadier one is, the more of its peak it holds on the whole.
  #rank(device) {
    const { op, subject } = device.steps, { bytes } = device.allocations;
    const held = new Float64Array(this.list.length);
    for (let number = 0; number < device.before; number++) held[this.of[number]] += bytes[number];
    const peaks = held.slice(), areas = new Float64Array(held.length), changed = new Uint32Array(held.length);
    for (let step = 0; step < device.last; step++) {
      if (op[step] > END) continue;
      const which = subject[step], owner = this.of[which];
      areas[owner] += held[owner] * (step - changed[owner]);
      changed[owner] = step;
      held[owner] += op[step] === BEGIN ? bytes[which] : -bytes[which];
      if (held[owner] > peaks[owner]) peaks[owner] = held[owner];
    }
    this.ranked = this.list.toSorted((a, b) => peaks[b.place] - peaks[a.place]);
    this.ranked.forEach((owner, rank) => {
      const { place } = owner, area = areas[place] + held[place] * (device.last - changed[place]);
      Object.assign(owner, { rank, steadiness: area / (peaks[place] || 1) });
    });
  }
}

// For every stack, one more than the frame that stands for it: the innermost of the user's own, or the outermost that
// not all stacks share. A line of Python stands before the native calls of its interpreter.
function ownerFrames(head, mode) {
  const chosen = new Uint32Array(head.stackCount);
  const shared = mode === "outermost" ? sharedFrames(head) : 0;
  const own = head.frames.map(isOwn), python = head.frames.map((frame, number) => own[number] && PYTHON.test(frame[1]));
  const named = head.frames.map((frame) => !UNNAMED.test(frame[0]));
  for (let stack = 1; stack < head.stackCount; stack++) {
    const frames = head.framesOf(stack);
    const outer = frames.subarray(0, Math.max(1, frames.length - shared));
    const is = [python, own].find((wanted) => frames.some((number) => wanted[number])) ?? own;
    const frame = mode === "innermost" ? frames.find((number) => is[number]) ?? frames.find((number) => named[number]) ?? frames[0] : outer.findLast((number) => is[number]) ?? outer.at(-1);
    chosen[stack] = frame + 1;
  }
  return chosen;
}

// How many frames all stacks have in common, from the outermost on.
function sharedFrames(head) {
  const first = head.framesOf(1);
  let shared = first.length;
  for (let stack = 2; stack < head.stackCount && shared; stack++) {
    const frames = head.framesOf(stack);
    let same = 0;
    while (same < shared && same < frames.length && frames.at(-1 - same) === first.at(-1 - same)) same++;
    shared = same;
  }
  return shared;
}

// For every stack whether one of its frames has the text; nothing if there is no text.
function search(head, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const hits = head.frames.map((frame) => frameText(frame).toLowerCase().includes(wanted));
  const found = new Uint8Array(head.stackCount);
  for (let stack = 1; stack < head.stackCount; stack++) found[stack] = head.framesOf(stack).some((number) => hits[number]) ? 1 : 0;
  return found;
}

function frameText([name, file, line]) {
  return line ? `${name} ${file}:${line}` : `${name} ${file}`;
}
