// How much of each segment is free, and in how large pieces.

class Fragments {
  constructor(device) {
    const { first, bytes } = device.segments, { state } = device.blocks;
    const count = bytes.length;
    this.free = new Float64Array(count);
    this.largest = new Float64Array(count);
    this.total = { reserved: device.now, free: 0, largest: 0, unused: 0, allocated: 0, pending: 0, requested: 0 };
    for (let segment = 0; segment < count; segment++) {
      for (let block = first[segment]; block < first[segment + 1]; block++) {
        const size = device.blocks.bytes[block];
        if (state[block] === FREE) {
          this.free[segment] += size;
          this.largest[segment] = Math.max(this.largest[segment], size);
        } else {
          this.total.requested += device.blocks.requested[block];
          this.total[state[block] === PENDING ? "pending" : "allocated"] += size;
        }
      }
      this.total.free += this.free[segment];
      this.total.largest = Math.max(this.total.largest, this.largest[segment]);
      if (this.free[segment] === bytes[segment]) this.total.unused += bytes[segment];
    }
  }

  // The share of the free bytes that is not in the largest free block.
  static broken(free, largest) {
    return free > 0 ? 1 - largest / free : 0;
  }

  get words() {
    const { free, largest, reserved, unused } = this.total;
    if (!(reserved > 0)) return "";
    return [
      `${shareText(free, reserved)} free, ${bytesText(free)}`,
      `largest block ${bytesText(largest)}`,
      `fragmentation ${shareText(Fragments.broken(free, largest), 1)}`,
      unused ? `unused segments ${bytesText(unused)}` : null,
    ].filter(Boolean).join(" · ");
  }
}
