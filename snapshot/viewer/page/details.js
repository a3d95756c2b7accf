// All about what is pinned: a block, an allocation, a moment, one at which memory ran out, or a finding.

function showDetails(view) {
  const { pin } = view;
  const body = find("#details-body");
  find("#unpin").hidden = !pin;
  find("#details").classList.toggle("pinned", pin !== null);
  if (!pin) body.replaceChildren(line("Click a block in either picture to keep it here, with the stack that allocated it."));
  else if (pin.finding !== undefined) body.replaceChildren(...findingDetails(view, pin.finding));
  else if (pin.out !== undefined) body.replaceChildren(...outDetails(view, pin.out));
  else if (pin.number !== null) body.replaceChildren(...allocationDetails(view, pin.number, pin.block));
  else if (pin.block !== null && pin.block !== undefined) body.replaceChildren(...freeDetails(view, pin.block));
  else body.replaceChildren(...momentDetails(view, pin.state));
}

function allocationDetails(view, number, block) {
  const { device, owners } = view, { allocations } = device;
  const { begin, end, done } = allocations, owner = owners.list[owners.of[number]];
  const isOver = end[number] <= device.last;
  const rounded = block !== null && block !== undefined ? device.blocks.bytes[block] : null;
  return [
    make("p", { className: "lead" }, swatch(ownerColour(owner.rank, true)), bytesText(allocations.bytes[number])),
    facts([
      ["Owner", owner.name],
      ["Asked for", `${countText(allocations.bytes[number])} bytes`],
      ["Block", rounded === null ? "" : `${countText(rounded)} bytes`],
      ["Address", addressText(allocations.address[number])],
      ["Stream", device.streamText(allocations.stream[number])],
      ["Pool", device.poolText(allocations.pool[number])],
      ["Metadata", device.text(allocations.metadata[number])],
      ["Compiling", device.text(allocations.context[number])],
      ["Allocated", begin[number] ? timeText(device.timeOf(begin[number]), 1) : device.last ? "before the history" : ""],
      ["Given back", isOver ? timeText(device.timeOf(end[number]), 1) : device.last ? "not yet" : ""],
      ["Held for", isOver && begin[number] ? timeText(device.timeOf(end[number]) - device.timeOf(begin[number])) : ""],
      ["Free again", isOver && done[number] > end[number] + 1 ? (done[number] <= device.last ? timeText(device.timeOf(done[number]), 1) : "not yet: other streams use it") : ""],
    ]),
    ...stackList(view, "Stack, innermost first", allocations.stack[number]),
    ...(allocations.forward[number] ? stackList(view, "Stack of the forward pass", allocations.forward[number]) : []),
  ];
}

function freeDetails({ device }, block) {
  const { blocks } = device;
  const words = blocks.state[block] === FREE ? "Free block" : "Block";
  const segment = device.segments.first.findLastIndex((first) => first <= block);
  return [make("p", { className: "lead", textContent: `${words} of ${bytesText(blocks.bytes[block])}` }), facts([
    ["Bytes", countText(blocks.bytes[block])],
    ["Address", addressText(device.segments.address[segment] + BigInt(blocks.offset[block]))],
    ["Stream", device.streamText(device.segments.stream[segment])],
    ["Pool", device.poolText(device.segments.pool[segment])],
  ])];
}

function momentFacts({ device }, state) {
  const free = device.reserved[state] - device.height[state];
  return [
    ["Allocated", bytesText(device.allocated[state])],
    ["Pending", device.height[state] > device.allocated[state] ? bytesText(device.height[state] - device.allocated[state]) : ""],
    ["Reserved", bytesText(device.reserved[state])],
    ["Free inside", free > 0 ? bytesText(free) : ""],
  ];
}

function momentDetails(view, state) {
  return [make("p", { className: "lead", textContent: `At ${timeText(view.device.timeOf(state), 1)}` }), facts(momentFacts(view, state))];
}

function outDetails(view, out) {
  const { device } = view, { others } = device;
  const step = device.outs[out], which = device.steps.subject[step];
  const free = Number(others.address[which]), wanted = others.bytes[which];
  const inside = device.reserved[step] - device.height[step];
  return [
    make("p", { className: "lead alarm", textContent: `Out of memory: ${bytesText(wanted)} requested` }),
    facts([
      ["Moment", `${timeText(device.timeOf(step + 1), 1)} (${out + 1} of ${device.outs.length})`],
      ["Free on device", bytesText(free)],
      ...momentFacts(view, step),
      ["Stream", device.streamText(others.stream[which])],
      ["Pool", device.poolText(others.pool[which])],
      ["Metadata", device.text(others.metadata[which])],
    ]),
    line(inside >= wanted ? "The segments had more free bytes than were requested, but no free block of this stream and pool was large enough." : "The segments and the device together had less than was requested.", false),
    ...stackList(view, "Stack, innermost first", others.stack[which]),
  ];
}

function findingDetails(view, number) {
  const { device } = view, finding = device.findings[number], { words, time, state, address } = finding;
  const title = (which) => (device.isHeld(which, state) ? "Allocated now, innermost first" : "Allocated before, innermost first");
  return [
    make("p", { className: "lead alarm", textContent: words }),
    facts([["Moment", `${timeText(time, 1)} (${number + 1} of ${device.findings.length})`], ["Address", address === null ? "" : addressText(address)]]),
    line("Found by Cachette's sanitizer, whose report lists the uses and what is missing in the program."),
    ...device.allocationsAt(finding).flatMap((which) => stackList(view, title(which), device.allocations.stack[which])),
  ];
}

// The frames of a stack; the user's own and those that the text finds stand out.
function stackList({ device, text }, title, stack) {
  const frames = Array.from(device.head.framesOf(stack), (number) => device.head.frames[number]);
  if (!frames.length) return [make("h3", { textContent: title }), line("No stack was recorded.")];
  const wanted = text.trim().toLowerCase();
  const items = frames.map((frame) => {
    const isHit = wanted && frameText(frame).toLowerCase().includes(wanted);
    const place = frame[2] ? `${frame[1]}:${frame[2]}` : frame[1];
    return make("li", { className: `${isOwn(frame) ? "own" : ""}${isHit ? " hit" : ""}` }, frame[0] || "unnamed", place ? make("small", { textContent: place }) : null);
  });
  return [make("h3", { textContent: title }), make("ol", { className: "stack" }, ...items)];
}
