// The picture of memory over time: one column a point, each at its highest state, so that no peak is lost.

const LEFT = 68, RIGHT = 14, BOTTOM = 24, LANE = 16;

class Timeline {
  constructor(canvas, overview) {
    this.canvas = canvas;
    this.overview = overview;
  }

  draw(view) {
    const { context, width, height } = prepare(this.canvas);
    const lanes = Math.min(2, view.spans.depth);
    Object.assign(this, { context, wide: Math.max(1, Math.floor(width - LEFT - RIGHT)), top: 10 + lanes * LANE, bottom: height - BOTTOM });
    this.#measure(view);
    this.#grid(view);
    this.#areas(view);
    this.#reserved(view);
    this.#spans(view);
    for (const step of view.device.outs) this.#mark(this.x(view.axis, view.axis.valueOf(step + 1)), "");
    for (const finding of view.device.findings) this.#mark(this.findingX(view, finding), "sanitizer");
    this.#pointed(view);
    this.#drawOverview(view);
  }

  x(axis, value) {
    return LEFT + ((value - axis.from) / (axis.to - axis.from)) * this.wide;
  }

  y(bytes) {
    return this.bottom - (bytes / this.most) * (this.bottom - this.top);
  }

  valueAt(axis, x) {
    return axis.from + ((x - LEFT) / this.wide) * (axis.to - axis.from);
  }

  // Takes the highest state of every column and what each layer holds in it.
  #measure({ device, layers, axis }) {
    const { wide } = this, { count } = layers;
    this.layers = layers;
    this.picks = new Uint32Array(wide);
    this.edges = new Float64Array(wide * (count + 1));
    const values = new Float64Array(count);
    this.most = 1;
    let state = axis.stateAt(axis.from), read = -1;
    for (let column = 0; column < wide; column++) {
      const next = axis.stateAt(axis.from + ((column + 1) / wide) * (axis.to - axis.from));
      const pick = device.highest(state, next + 1);
      state = next;
      this.picks[column] = pick;
      if (pick !== read) layers.read((read = pick), values);
      let edge = 0;
      for (let layer = 0; layer < count; layer++) this.edges[column * (count + 1) + layer + 1] = edge += values[layer];
      this.most = Math.max(this.most, edge, device.reserved[pick]);
    }
    this.most *= 1.04;
  }

  #grid({ axis }) {
    const { context, wide, bottom } = this;
    context.strokeStyle = colours.line;
    context.fillStyle = colours.quiet;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const tick of ticks(0, this.most, 6, true).list) {
      const y = Math.round(this.y(tick)) + 0.5;
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(LEFT + wide, y);
      context.stroke();
      context.fillText(tick ? roundText(tick) : "0", LEFT - 8, y);
    }
    context.textAlign = "center";
    const { step, list } = ticks(axis.from, axis.to, Math.max(2, wide / 110), false);
    for (const tick of list) context.fillText(axis.text(tick, step), Math.min(LEFT + wide - 20, this.x(axis, tick)), bottom + 14);
  }

  // From the highest layer down, each to the ground, so that no seam shows.
  #areas({ layers }) {
    const { context, wide, bottom } = this, stride = layers.count + 1;
    for (let layer = layers.count; layer > 0; layer--) {
      context.beginPath();
      context.moveTo(LEFT, bottom);
      for (let column = 0; column < wide; column++) {
        const y = this.y(this.edges[column * stride + layer]);
        context.lineTo(LEFT + column, y);
        context.lineTo(LEFT + column + 1, y);
      }
      context.lineTo(LEFT + wide, bottom);
      context.fillStyle = layers.colour(layer - 1);
      context.fill();
    }
  }

  #reserved({ device }) {
    const { context, wide } = this;
    context.beginPath();
    for (let column = 0; column < wide; column++) {
      const y = this.y(device.reserved[this.picks[column]]);
      context.lineTo(LEFT + column, y);
      context.lineTo(LEFT + column + 1, y);
    }
    context.strokeStyle = colours.reserved;
    context.globalAlpha = 0.75;
    context.lineWidth = 1.25;
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "right";
    context.fillStyle = colours.quiet;
    // Above the line where it is under the word, or below it where there is no room.
    const under = this.picks.slice(-Math.ceil(context.measureText("reserved").width) - 8).map((pick) => this.y(device.reserved[pick]));
    const [high, low] = [Math.min(...under), Math.max(...under)];
    if (device.reserved[this.picks[wide - 1]] > 0) context.fillText("reserved", LEFT + wide - 4, high - 8 < this.top + 6 ? low + 10 : high - 8);
  }

  // What the program said it was doing, in lanes above.
  #spans({ axis, spans }) {
    const { context, wide } = this;
    context.textAlign = "left";
    const ends = [0, 0];
    for (const span of spans.list) {
      if (span.depth > 1) continue;
      const from = Math.max(LEFT, this.x(axis, axis.valueAt(span.from))), to = Math.min(LEFT + wide, this.x(axis, axis.valueAt(span.to)));
      if (to <= LEFT || from >= LEFT + wide || to < ends[span.depth] + 1) continue;
      ends[span.depth] = to;
      const y = 6 + span.depth * LANE;
      context.fillStyle = span.depth ? colours.free : colours.other;
      context.fillRect(from, y, Math.max(1, to - from - 1), LANE - 3);
      const fits = context.measureText(span.name).width <= to - from - 8;
      context.fillStyle = colours.quiet;
      if (fits || to - from > 60) context.fillText(shortened(context, span.name, to - from - 8), from + 4, y + 7);
    }
  }

  findingX({ axis }, { time }) {
    return this.x(axis, axis.valueAt(time));
  }

  // A moment at which something was wrong, with a word beside it.
  #mark(x, word) {
    const { context, wide, top, bottom } = this;
    if (x < LEFT || x > LEFT + wide) return;
    context.strokeStyle = context.fillStyle = colours.alarm;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    this.#upright(x, top, bottom);
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(x - 5, top - 2);
    context.lineTo(x + 5, top - 2);
    context.lineTo(x, top + 6);
    context.fill();
    const isRight = x + 80 > LEFT + wide;
    context.textAlign = isRight ? "right" : "left";
    context.fillText(word, isRight ? x - 8 : x + 8, top + 4);
  }

  #upright(x, top, bottom) {
    this.context.beginPath();
    this.context.moveTo(Math.round(x) + 0.5, top);
    this.context.lineTo(Math.round(x) + 0.5, bottom);
    this.context.stroke();
  }

  // The pinned block, the one under the pointer, their moments, and the range that is being selected.
  #pointed({ device, layers, axis, pin, hover, selected }) {
    const { context, top, bottom, wide } = this;
    for (const [place, weight] of [[pin, 2], [hover, 1]]) {
      if (!place) continue;
      if (place.number !== null) this.#band(device, layers, place.number, weight);
      if (place.state === null) continue;
      const x = place.x ?? this.x(axis, axis.valueOf(place.state));
      context.strokeStyle = weight === 2 ? colours.accent : colours.faint;
      context.lineWidth = weight;
      if (x >= LEFT && x <= LEFT + wide) this.#upright(x, top, bottom);
    }
    if (selected) {
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.16;
      context.fillRect(selected[0], top, selected[1] - selected[0], bottom - top);
      context.globalAlpha = 1;
    }
  }

  #band(device, layers, number, weight) {
    const { context } = this;
    const list = bandOf(this, device, layers, number);
    if (!list.length) return;
    context.beginPath();
    for (const [column, low, high] of list) {
      context.rect(LEFT + column, this.y(high), 1, Math.max(1, this.y(low) - this.y(high)));
    }
    context.fillStyle = colours.ink;
    context.globalAlpha = weight === 2 ? 0.62 : 0.4;
    context.fill();
    context.globalAlpha = 1;
  }

  // All of it, small, with the part that is shown.
  #drawOverview({ device, axis }) {
    const { context, height } = prepare(this.overview);
    const { wide } = this;
    const most = Math.max(1, device.mostReserved, device.height[device.highest(0, device.last + 1)]);
    context.beginPath();
    context.moveTo(LEFT, height);
    let state = 0;
    for (let column = 0; column < wide; column++) {
      const next = axis.stateAt(((column + 1) / wide) * axis.length);
      const y = height - (device.height[device.highest(state, next + 1)] / most) * (height - 4);
      state = next;
      context.lineTo(LEFT + column, y);
      context.lineTo(LEFT + column + 1, y);
    }
    context.lineTo(LEFT + wide, height);
    context.fillStyle = colours.rest;
    context.fill();
    const from = LEFT + (axis.from / axis.length) * wide, to = LEFT + (axis.to / axis.length) * wide;
    context.fillStyle = colours.panel;
    context.globalAlpha = 0.7;
    context.fillRect(LEFT, 0, from - LEFT, height);
    context.fillRect(to, 0, LEFT + wide - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), height - 1.5);
  }
}

// Words that fit, or their beginning.
function shortened(context, words, width) {
  if (context.measureText(words).width <= width) return words;
  let length = words.length;
  while (length > 1 && context.measureText(`${words.slice(0, length)}…`).width > width) length--;
  return `${words.slice(0, length)}…`;
}
