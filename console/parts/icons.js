// Shapes of states and pictures of pages, drawn in the colour of the text.
import { svg } from '../dom.js';

const STATUS = {
  ok: () => svg('circle', { cx: 6, cy: 6, r: 5, fill: 'currentColor' }),
  info: () => svg('path', { d: 'M6 0 12 6 6 12 0 6Z', fill: 'currentColor' }),
  look: () => svg('path', { d: 'M6 0 12 11.5H0Z', fill: 'currentColor' }),
  bad: () => svg('rect', { x: 1, y: 1, width: 10, height: 10, fill: 'currentColor' }),
  off: () => svg('circle', { cx: 6, cy: 6, r: 4.25, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }),
};

export const shape = (kind) =>
  svg(`svg.shape.${kind}`, { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' }, STATUS[kind]());

const PAGES = {
  overview: 'M2 9l3-5 3 6 2-3h4',
  channels: 'M2 4h12M2 8h12M2 12h8',
  connections: 'M3 5h10M3 5l2-2M3 5l2 2M13 11H3M13 11l-2-2M13 11l-2 2',
  registry: 'M8 2l6 6-6 6-6-6z',
  inbox: 'M2 9h3l1 2h4l1-2h3M2 9l2-6h8l2 6v4H2z',
  bans: 'M3.8 3.8l8.4 8.4M8 2a6 6 0 100 12A6 6 0 008 2z',
  events: 'M9 2L4 9h4l-1 5 5-7H8z',
  consumers: 'M2 4h5v8H2zM9 8h5M12 6l2 2-2 2',
  statistics: 'M3 13V8M7 13V3M11 13V6M14 13H2',
  tokens: 'M10 6a3 3 0 10-6 0 3 3 0 006 0zM9 8l5 5M12 11l-1 2',
  configuration: 'M2 5h7M13 5h1M2 11h1M7 11h7M11 3v4M5 9v4',
  api: 'M5 4L2 8l3 4M11 4l3 4-3 4M9 3L7 13',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
};

export const icon = (name) => svg('svg.icon', {
  viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', fill: 'none', stroke: 'currentColor',
  'stroke-width': name === 'more' ? 2.5 : 1.5, 'stroke-linecap': 'round', 'stroke-linejoin': 'round',
}, svg('path', { d: PAGES[name] }));
