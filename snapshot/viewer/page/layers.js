// What each layer of the picture holds in any state: the owners that held the most, the rest, and what is pending.
//
// Steady owners lie at the bottom, so that what comes and goes does not shake them.

class Layers {
  // `lit` says of an allocation whether it counts; what does not is in the last layer but one.
  constructor(device, owners, lit) {
    this.device = device;
    this.owners = Layers.#choose(owners, lit).sort((a, b) => b.steadiness - a.steadiness);
    this.rest = this.owners.length;
    this.others = this.rest + 1;
    this.pending = this.rest + 2;
    this.count = this.rest + 3;
    const places = new Map(this.owners.map((owner, layer) => [owner.place, layer]));
    const layers = Uint8Array.from(owners.list, (owner) => places.get(owner.place) ?? this.rest);
    this.of = new Uint8Array(owners.of.length);
    for (let number = 0; number < this.of.length; number++) this.of[number] = lit && !lit(number) ? this.others : layers[owners.of[number]];
    this.#keep();
  }

  // The first by rank of those that have something lit.
  static #choose(owners, lit) {
    if (!lit) return owners.ranked.slice(0, TOP);
    const has = new Uint8Array(owners.list.length);
    for (let number = 0; number < owners.of.length; number++) if (lit(number)) has[owners.of[number]] = 1;
    return owners.ranked.filter((owner) => has[owner.place]).slice(0, TOP);
  }

  // Keeps the values of every so many states, from which those of the others are walked to.
  #keep() {
    const { device, count } = this;
    const values = new Float64Array(count);
    for (let number = 0; number < device.before; number++) values[this.of[number]] += device.allocations.bytes[number];
    this.kept = new Float64Array(Math.ceil((device.last + 1) / STRETCH) * count);
    for (let state = 0; state <= device.last; state += STRETCH) {
      this.kept.set(values, (state / STRETCH) * count);
      this.#walk(values, state, Math.min(device.last, state + STRETCH));
    }
  }

  #walk(values, from, to) {
    const { op, subject } = this.device.steps, { bytes } = this.device.allocations;
    for (let step = from; step < to; step++) {
      if (op[step] > DONE) continue;
      const which = subject[step], size = bytes[which];
      if (op[step] === BEGIN) values[this.of[which]] += size;
      else if (op[step] === DONE) values[this.pending] -= size;
      else {
        values[this.of[which]] -= size;
        values[this.pending] += size;
      }
    }
  }

  // Puts the values of a state into `values`.
  read(state, values) {
    const stretch = Math.floor(state / STRETCH);
    values.set(this.kept.subarray(stretch * this.count, (stretch + 1) * this.count));
    this.#walk(values, stretch * STRETCH, state);
  }

  colour(layer) {
    if (layer === this.pending) return colours.pending;
    if (layer === this.others) return colours.other;
    return layer === this.rest ? colours.rest : ownerColour(this.owners[layer].rank, true);
  }

  name(layer) {
    if (layer === this.pending) return "Given back, still used by other streams";
    if (layer === this.others) return "Everything else";
    return layer === this.rest ? "Other owners" : this.owners[layer].name;
  }
}
