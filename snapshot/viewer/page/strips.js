// Every segment as a strip with its blocks; only what is scrolled to is drawn.

const ROW = 22, STRIP_LEFT = 346, STRIP_RIGHT = 176;
const SORTS = { address: "address", size: "size", free: "free bytes", broken: "fragmentation", stream: "stream", pool: "pool" };

class Strips {
  constructor(scroller, canvas, tall) {
    Object.assign(this, { scroller, canvas, tall });
  }

  // Puts the segments in order.
  sort({ device, fragments, sort }) {
    const { segments } = device;
    const by = {
      address: () => 0,
      size: (a, b) => segments.bytes[b] - segments.bytes[a],
      free: (a, b) => fragments.free[b] - fragments.free[a],
      broken: (a, b) => Fragments.broken(fragments.free[b], fragments.largest[b]) - Fragments.broken(fragments.free[a], fragments.largest[a]),
      stream: (a, b) => segments.stream[a] - segments.stream[b],
      pool: (a, b) => segments.pool[a] - segments.pool[b],
    }[sort];
    const byAddress = (a, b) => (segments.address[a] < segments.address[b] ? -1 : 1);
    this.order = Uint32Array.from(segments.bytes.keys()).sort((a, b) => by(a, b) || byAddress(a, b));
    this.most = segments.bytes.reduce((a, b) => Math.max(a, b), 1);
    this.tall.style.height = `${this.order.length * ROW}px`;
  }

  draw(view) {
    const { clientWidth, clientHeight } = this.scroller;
    const { context, width, height } = prepare(this.canvas, clientWidth, clientHeight);
    this.canvas.style.height = `${height}px`;
    this.context = context;
    this.wide = Math.max(40, width - STRIP_LEFT - STRIP_RIGHT);
    context.textBaseline = "middle";
    const first = Math.floor(this.scroller.scrollTop / ROW);
    for (let row = first; row < this.order.length && row * ROW - this.scroller.scrollTop < height; row++) {
      this.#row(view, this.order[row], row * ROW - this.scroller.scrollTop);
    }
  }

  // Longer for larger segments, by the square root, so that small ones can be seen beside large ones.
  width(view, segment) {
    return Math.max(Math.min(48, this.wide), this.wide * Math.sqrt(view.device.segments.bytes[segment] / this.most));
  }

  #row(view, segment, y) {
    const { context } = this, { device, fragments } = view, { segments } = device;
    const middle = y + ROW / 2, width = this.width(view, segment);
    context.textAlign = "left";
    context.fillStyle = colours.quiet;
    context.fillText(addressText(segments.address[segment]), 12, middle);
    context.fillText(shortened(context, this.words(device, segment), 148), 190, middle);
    context.fillStyle = colours.ink;
    context.textAlign = "right";
    context.fillText(bytesText(segments.bytes[segment]), 180, middle);
    this.#blocks(view, segment, y + 4, width);
    const free = fragments.free[segment];
    context.fillStyle = colours.quiet;
    context.textAlign = "left";
    const words = free === segments.bytes[segment] ? "unused" : free ? `${shareText(free, segments.bytes[segment])} free, ≤ ${bytesText(fragments.largest[segment])}` : "full";
    context.fillText(shortened(context, words, STRIP_RIGHT - 22), STRIP_LEFT + width + 10, middle);
  }

  words(device, segment) {
    const { flags, pool, stream } = device.segments;
    const words = [flags[segment] & 2 ? "elastic" : flags[segment] & 1 ? "large" : "small"];
    if (pool[segment]) words.push(device.poolText(pool[segment]));
    if (device.head.streams[stream[segment]] !== "0") words.push(`…${device.streamText(stream[segment]).slice(-4)}`);
    return words.join(" · ");
  }

  // Of blocks that share a point, the one that covers most of it is shown.
  #blocks(view, segment, y, width) {
    const { context } = this, { device, pin, hover } = view, { blocks, segments } = device;
    const scale = width / segments.bytes[segment], high = ROW - 8;
    context.fillStyle = colours.free;
    context.fillRect(STRIP_LEFT, y, width, high);
    let point = -1, most = 0;
    for (let block = segments.first[segment]; block < segments.first[segment + 1]; block++) {
      const from = blocks.offset[block] * scale, to = from + blocks.bytes[block] * scale;
      const narrow = to - from < 1.5;
      if (narrow) {
        const here = Math.floor(from);
        if (here === point && to - from <= most) continue;
        [point, most] = [here, to - from];
      }
      context.fillStyle = this.colour(view, block);
      if (narrow) context.fillRect(STRIP_LEFT + point, y, 1, high);
      else context.fillRect(STRIP_LEFT + from, y, to - from - (to - from > 3 ? 0.75 : 0), high);
      if (block === pin?.block || block === hover?.block) {
        context.strokeStyle = colours.ink;
        context.lineWidth = 1.5;
        context.strokeRect(STRIP_LEFT + from, y - 1, Math.max(2, to - from), high + 2);
      }
    }
  }

  colour(view, block) {
    const { device, owners, lit } = view, { state, allocation } = device.blocks;
    if (state[block] === FREE) return colours.free;
    const number = allocation[block] - 1;
    if (lit && !(number >= 0 && lit(number))) return colours.other;
    if (state[block] === PENDING) return colours.pending;
    return number < 0 ? colours.rest : ownerColour(owners.list[owners.of[number]].rank, lit !== null);
  }

  // The block under a point, or null.
  blockAt(view, x, y) {
    const row = Math.floor((y + this.scroller.scrollTop) / ROW);
    if (row < 0 || row >= this.order.length) return null;
    const segment = this.order[row], { segments, blocks } = view.device;
    const bytes = ((x - STRIP_LEFT) / this.width(view, segment)) * segments.bytes[segment];
    let low = segments.first[segment], high = segments.first[segment + 1];
    if (bytes < 0 || bytes >= segments.bytes[segment]) return { segment, block: null };
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (blocks.offset[middle] <= bytes) low = middle;
      else high = middle;
    }
    return { segment, block: low < segments.first[segment + 1] ? low : null };
  }
}
