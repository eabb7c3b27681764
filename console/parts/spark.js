// A sparkline: one colour, with a gap where there is no reading.
import { fill, svg } from '../dom.js';

const WIDTH = 120;
const HEIGHT = 24;

/** Runs of existing points, as the `points` of polylines; `top` is the end of the scale. */
export function runs(values, top, width = WIDTH, height = HEIGHT) {
  const round = (value) => Math.round(value * 10) / 10;
  const point = (value, index) => `${round((index / Math.max(1, values.length - 1)) * width)},${round(height - (value / (top || 1)) * height)}`;
  const points = values.map((value, index) => (Number.isFinite(value) ? point(value, index) : ''));
  const found = points.join(' ').split(/ {2,}/).map((run) => run.trim()).filter(Boolean);
  // One point alone is drawn as a dot.
  return found.map((run) => (run.includes(' ') ? run : `${run} ${run}`));
}

export function spark() {
  const root = svg('svg.spark', { viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'not known yet' });
  return {
    root,
    set(values, words) {
      const real = values.filter(Number.isFinite);
      root.setAttribute('aria-label', words);
      fill(root, svg('title', null, words), runs(values, Math.max(...real, 0)).map((points) =>
        svg('polyline', { points, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-linecap': 'round', 'vector-effect': 'non-scaling-stroke' })));
    },
  };
}

/** The mean of each `size` values, null where there is none: 360 readings of 10 s become 120 points of 30 s. */
export function thinned(values, size) {
  const points = [];
  for (let at = 0; at < values.length; at += size) {
    const some = values.slice(at, at + size).filter(Number.isFinite);
    points.push(some.length ? some.reduce((sum, value) => sum + value, 0) / some.length : null);
  }
  return points;
}
