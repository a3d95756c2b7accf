// What lies along the picture: time or events, and which part of it is shown.

class Axis {
  constructor(device, kind) {
    this.device = device;
    this.kind = device.span > 0 ? kind : "events";
    this.length = this.kind === "time" ? device.span * 1.004 : device.last + 1;
    this.narrowest = this.kind === "time" ? Math.min(this.length, 8) : Math.min(this.length, 4);
    this.all();
  }

  // The state at a value.
  stateAt(value) {
    if (this.kind === "events") return Math.min(this.device.last, Math.max(0, Math.floor(value)));
    return this.device.stateAt(value);
  }

  valueOf(state) {
    return this.kind === "events" ? state : this.device.timeOf(state);
  }

  // The value at a time, for what has a time but no state.
  valueAt(us) {
    if (this.kind === "time") return us;
    let low = 0, high = this.device.last;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.device.steps.time[middle] < us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  text(value, step) {
    return this.kind === "events" ? countText(Math.round(value)) : timeText(value, step, this.to);
  }

  all() {
    this.show(0, this.length);
  }

  show(from, to) {
    const width = Math.min(this.length, Math.max(this.narrowest, to - from));
    this.from = Math.min(Math.max(0, (from + to - width) / 2), this.length - width);
    this.to = this.from + width;
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const width = Math.max(this.narrowest, (this.to - this.from) * factor);
    const left = at - ((at - this.from) / (this.to - this.from)) * width;
    this.show(left, left + width);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  get isWhole() {
    return this.to - this.from >= this.length;
  }
}
