// One device over time: a state before the first step and one after each.

class Device {
  constructor(data, head) {
    Object.assign(this, data);
    this.head = head;
    this.last = this.steps.op.length;
    this.#follow();
    this.#index();
    this.segments.first = runningSum(this.segments.blocks);
  }

  // The states between which each allocation is held and then pending, and the sums in every state.
  #follow() {
    const { op, subject } = this.steps;
    const { bytes } = this.allocations;
    const count = bytes.length, last = this.last;
    const begin = new Uint32Array(count), end = new Uint32Array(count).fill(last + 1), done = new Uint32Array(count).fill(last + 1);
    const allocated = new Float64Array(last + 1), height = new Float64Array(last + 1), reserved = new Float64Array(last + 1);
    let held = 0, pending = 0, kept = 0, lowest = 0, most = 0, peak = 0;
    for (let number = 0; number < this.before; number++) held += bytes[number];
    allocated[0] = height[0] = held;
    for (let step = 0; step < last; step++) {
      const which = subject[step];
      switch (op[step]) {
        case BEGIN: held += bytes[which]; begin[which] = step + 1; break;
        case END: held -= bytes[which]; pending += bytes[which]; end[which] = step + 1; break;
        case DONE: pending -= bytes[which]; done[which] = step + 1; break;
        case GROW: kept += this.others.bytes[which]; most = Math.max(most, kept); break;
        case SHRINK: kept -= this.others.bytes[which]; lowest = Math.min(lowest, kept); break;
      }
      allocated[step + 1] = held;
      if (held > allocated[peak]) peak = step + 1;
      height[step + 1] = held + pending;
      reserved[step + 1] = kept;
    }
    // What was reserved before the first step follows from what is at the end; it never was below nothing.
    const now = this.segments.bytes.reduce((sum, size) => sum + size, 0);
    const first = Math.max(now - kept, -lowest, 0);
    for (let state = 0; state <= last; state++) reserved[state] += first;
    Object.assign(this.allocations, { begin, end, done });
    Object.assign(this, { allocated, height, reserved, now, peak, mostReserved: first + most });
  }

  // The highest state of every stretch, so that a wide range is searched in few looks.
  #index() {
    this.crests = new Uint32Array(Math.ceil((this.last + 1) / STRETCH));
    for (let stretch = 0; stretch < this.crests.length; stretch++) {
      this.crests[stretch] = this.#scan(stretch * STRETCH, Math.min(this.last + 1, (stretch + 1) * STRETCH));
    }
    this.outs = [];
    for (let step = 0; step < this.last; step++) if (this.steps.op[step] === OUT_OF_MEMORY) this.outs.push(step);
    // A use can come after the last event.
    const found = this.annotations.filter(([name, begins]) => begins && name.startsWith(SANITIZER));
    this.findings = found.map(([name, , time]) => this.#finding(name.slice(SANITIZER.length), Math.min(time, this.span)));
  }

  // A finding: its words, its moment, and its address if the words end with one.
  #finding(text, time) {
    const [, words, address] = /^(.*), at (0x[0-9a-f]{1,16})$/.exec(text) ?? [null, text, null];
    return { words: words.charAt(0).toUpperCase() + words.slice(1), time, state: this.stateAt(time), address: address && BigInt(address) };
  }

  // The last two allocations at the address of a finding, the newest first.
  allocationsAt({ address, state }) {
    const { begin, bytes } = this.allocations, list = [];
    for (let number = address === null ? -1 : bytes.length - 1; number >= 0 && list.length < 2; number--) {
      const from = this.allocations.address[number];
      if (begin[number] <= state && from <= address && address < from + BigInt(Math.max(1, bytes[number]))) list.push(number);
    }
    return list;
  }

  #scan(from, to) {
    let best = from;
    for (let state = from + 1; state < to; state++) if (this.height[state] > this.height[best]) best = state;
    return best;
  }

  // The highest state of those from `from` to before `to`.
  highest(from, to) {
    const first = Math.ceil(from / STRETCH), after = Math.floor(to / STRETCH);
    if (first >= after) return this.#scan(from, to);
    let best = this.#scan(from, Math.max(from + 1, first * STRETCH));
    for (let stretch = first; stretch < after; stretch++) {
      if (this.height[this.crests[stretch]] > this.height[best]) best = this.crests[stretch];
    }
    if (after * STRETCH < to) {
      const end = this.#scan(after * STRETCH, to);
      if (this.height[end] > this.height[best]) best = end;
    }
    return best;
  }

  // When a state began, in microseconds after the first event.
  timeOf(state) {
    return state > 0 ? this.steps.time[state - 1] : 0;
  }

  // The state at a time.
  stateAt(us) {
    const { time } = this.steps;
    let low = 0, high = this.last;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] <= us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  get span() {
    return this.timeOf(this.last);
  }

  isHeld(number, state) {
    return this.allocations.begin[number] <= state && state < this.allocations.end[number];
  }

  poolText(pool) {
    return this.head.pools[pool] ?? (pool === 0 ? "default pool" : `pool number ${pool}`);
  }

  streamText(stream) {
    return this.head.streams.length ? streamText(this.head.streams[stream]) : "no stream";
  }

  text(number) {
    return number ? this.head.texts[number - 1] ?? "" : "";
  }
}

const STRETCH = 256;
// How the annotations begin that are findings.
const SANITIZER = "sanitizer: ";

// The sum of all before each, and of all.
function runningSum(numbers) {
  const sums = new Float64Array(numbers.length + 1);
  for (let index = 0; index < numbers.length; index++) sums[index + 1] = sums[index] + numbers[index];
  return sums;
}

// The frames of every stack; stack zero has none.
function readStacks(head) {
  const first = runningSum(head.stack_lengths);
  head.framesOf = (stack) => (stack > 0 && stack < first.length ? head.stack_frames.subarray(first[stack - 1], first[stack]) : head.stack_frames.subarray(0, 0));
  head.stackCount = first.length;
}
