'use strict';

const UNITS = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];

function bytes(count) {
  for (const [unit, name] of UNITS) {
    if (count > unit) return `${(count / unit).toFixed(2)} ${name}`;
  }
  return `${count} bytes`;
}

// A line of the box: a name and a figure, both as text.
function line(name, figure) {
  const row = document.createElement('div');
  for (const text of [name, figure]) {
    const part = document.createElement('span');
    part.textContent = text;
    row.append(part);
  }
  return row;
}

for (const section of document.querySelectorAll('section')) {
  const data = JSON.parse(section.querySelector('.data').textContent);
  const figure = section.querySelector('figure');
  const svg = figure.querySelector('svg');
  const cursor = svg.querySelector('.cursor');
  const box = figure.querySelector('.values');
  const [left, right] = [Number(svg.dataset.left), Number(svg.dataset.right)];
  const moments = Math.ceil(data.operations / data.step);

  figure.addEventListener('pointermove', event => {
    const frame = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / frame.width;
    const x = Math.min(Math.max((event.clientX - frame.left) * scale, left), right);
    const part = (x - left) / (right - left);
    const moment = Math.min(Math.floor(part * data.operations / data.step), moments - 1);
    const first = moment * data.step + 1;
    const last = Math.min(first + data.step - 1, data.operations);
    const place = first === last ? 'operation' : 'operations';
    const range = first === last
      ? first.toLocaleString('en')
      : `${first.toLocaleString('en')} to ${last.toLocaleString('en')}`;
    const rows = [line(place, range)];
    for (const [name, , values] of data.series) {
      rows.push(line(name, moment < values.length ? bytes(values[moment]) : 'ended'));
    }
    box.replaceChildren(...rows);
    box.hidden = false;
    cursor.style.visibility = 'visible';
    cursor.setAttribute('x1', x);
    cursor.setAttribute('x2', x);
    // On the side of the pointer that has room.
    const at = x / scale;
    const beyond = at + box.offsetWidth + 24 > frame.width;
    box.style.left = `${beyond ? at - box.offsetWidth - 12 : at + 12}px`;
  });

  figure.addEventListener('pointerleave', () => {
    box.hidden = true;
    cursor.style.visibility = 'hidden';
  });
}
