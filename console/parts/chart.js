// A chart with axes from 0, a cursor for keyboard and pointer, and the same data as a table.
import { button, fill, h, setText, svg } from '../dom.js';
import { clock, count, iso, short } from '../format.js';
import { copy } from './dialog.js';
import { runs } from './spark.js';

const WIDTH = 720;
const HEIGHT = 160;
const SERIES_MAX = 6;
const DASHES = ['', '6 3', '2 3', '8 3 2 3', '1 2', '10 4'];
const STEPS = [0, 0.5, 1];

/** `set({times, series: [{label, values}]}, now)`; times in Unix milliseconds. */
export function chart(label) {
  const plot = svg('svg.plot', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const scale = h('div.scale', { 'aria-hidden': 'true' });
  const reading = h('p.reading', { 'aria-live': 'polite' });
  const ends = h('div.ends', { 'aria-hidden': 'true' });
  const legend = h('p.legend', null);
  const cursor = svg('line.cursor', { y1: 0, y2: HEIGHT, 'vector-effect': 'non-scaling-stroke' });
  const stage = h('div.stage', { tabIndex: 0, role: 'slider', 'aria-label': label, 'aria-valuemin': 0, 'aria-orientation': 'horizontal' }, plot);
  const grid = h('div.chart-table', { hidden: true, tabIndex: 0, role: 'region', 'aria-label': `${label} as a table` });
  const root = h('div.chart', null, legend, h('div.chart-body', null, scale, stage), ends, reading,
    h('div.acts', null, button('Table', () => { grid.hidden = !grid.hidden; }), button('Copy CSV', () => copy(csv()))), grid);
  let data = { times: [], series: [] };
  let at = 0;
  let today = 0;
  function point(index) {
    if (!data.times.length) return;
    at = Math.max(0, Math.min(data.times.length - 1, index));
    const x = (at / Math.max(1, data.times.length - 1)) * WIDTH;
    cursor.setAttribute('x1', x);
    cursor.setAttribute('x2', x);
    const words = `${clock(data.times[at], today)}: ${data.series.map((one) => `${one.label} ${count(one.values[at])}`).join(', ')}`;
    setText(reading, words);
    stage.setAttribute('aria-valuenow', at);
    stage.setAttribute('aria-valuetext', words);
  }
  stage.addEventListener('keydown', (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: data.times.length - 1, PageUp: at + 10, PageDown: at - 10 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    point(to);
  });
  stage.addEventListener('pointermove', (event) => {
    const box = stage.getBoundingClientRect();
    point(Math.round(((event.clientX - box.left) / box.width) * (data.times.length - 1)));
  });
  const rowsOf = () => data.times.map((time, index) => [iso(time), ...data.series.map((one) => one.values[index] ?? '')]);
  const csv = () => [['time', ...data.series.map((one) => one.label)], ...rowsOf()].map((row) => row.join(',')).join('\n');
  return {
    root,
    set(next, now) {
      data = { times: next.times, series: next.series.slice(0, SERIES_MAX) };
      today = now;
      const top = Math.max(1, ...data.series.flatMap((one) => one.values).filter(Number.isFinite));
      fill(scale, [...STEPS].reverse().map((part) => h('span', null, short(top * part))));
      fill(plot, STEPS.map((part) => svg('line.rule', { x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part, 'vector-effect': 'non-scaling-stroke' })),
        data.series.map((one, index) => runs(one.values, top, WIDTH, HEIGHT).map((points) => svg('polyline', {
          points, class: `series-${index + 1}`, fill: 'none', 'stroke-dasharray': DASHES[index], 'stroke-width': index ? 1.25 : 2, 'vector-effect': 'non-scaling-stroke',
        }))), cursor);
      fill(legend, data.series.map((one, index) => h('span', { class: `key-${index + 1}` }, `${index ? '┄' : '━'} ${one.label}`)));
      fill(ends, [data.times[0], data.times.at(-1)].map((time) => h('span', null, clock(time, now))));
      stage.setAttribute('aria-valuemax', Math.max(0, data.times.length - 1));
      fill(grid, h('table', null, h('thead', null, h('tr', null, ['Time', ...data.series.map((one) => one.label)].map((text) => h('th', { scope: 'col' }, text)))),
        h('tbody', null, data.times.map((time, index) => h('tr', null, h('td', null, clock(time, now)), data.series.map((one) => h('td.num', null, count(one.values[index]))))))));
      point(data.times.length - 1);
    },
  };
}
