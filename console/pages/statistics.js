// 12 Statistics: audiences by time, and rankings.
import { button, fill, h } from '../dom.js';
import { count, plural, short } from '../format.js';
import { chart } from '../parts/chart.js';
import { commandOf, copy } from '../parts/dialog.js';
import { choice, field, textInput } from '../parts/form.js';
import { head, panel, tabbed } from '../parts/states.js';
import { table } from '../parts/table.js';

const RANGES = [['3600', 'last hour'], ['86400', 'last 24 h'], ['604800', 'last 7 d'], ['2592000', 'last 30 d']];
const DAY_S = 86_400;
const POINTS_MAX = 1440;
const TOPS = [['channels', 'Channels', 'channel'], ['namespaces', 'Namespaces', 'namespace'], ['events', 'Reported events', 'event'], ['transports', 'Transports', 'transport'], ['agents', 'Programs', 'agent'], ['codes', 'Codes', 'code']];
const TOP = 10;
const FIGURES = { peak: 'At most', minutes: 'Minutes', deliveries: 'Deliveries', publications: 'Publications', count: 'Count', users: 'Users', connections: 'Connections', average_ms: 'Mean, ms' };

export const stepOf = (seconds) => Math.max(60, Math.ceil(seconds / 288 / 60) * 60);

function tops(context, of, name, { from, to }, params) {
  const place = panel({ title: 'Tops', command: ['stats_top', { of, from, to, limit: TOP }], still: true });
  const read = () => context.ask('stats_top', { of, from, to, limit: TOP }).then(({ top: rows }) => {
    place.ready(context.now());
    if (!rows.length) return place.empty('Nothing was counted in this time.');
    const grid = table({
      caption: 'Tops', keyOf: (row) => row[name], href: of === 'channels' ? (row) => context.href('statistics', { ...params, channel: row.channel }) : undefined,
      columns: [['Name', (row) => String(row[name])], ...Object.entries(FIGURES).filter(([key]) => key in rows[0]).map(([key, label]) =>
        [label, (row) => short(row[key]), 2, label.toLowerCase(), (row) => count(row[key])])],
    });
    fill(place.body, grid.root);
    return grid.set(rows);
  }).catch((error) => place.fail(error, read, 'The ranking was not read.'));
  read();
  return place;
}

export default {
  mount(root, context) {
    const audience = panel({ title: 'Audience', command: ['stats_audience', { channel: context.params.channel ?? '' }], still: true });
    const drawing = chart('Audience by time');
    audience.body.append(drawing.root);
    const top = head('Statistics');
    const channel = textInput({ value: context.params.channel ?? '', required: true });
    const range = choice(RANGES, context.params.range ?? String(DAY_S), (value) => context.set({ range: value }));
    const form = h('form.inline-form', { on: { submit: (event) => {
      event.preventDefault();
      context.set({ channel: channel.value.trim() });
    } } }, field('Channel', channel), field('Range', range), h('button', { type: 'submit' }, 'Show'), button('Copy as command', () => copy(commandOf(...question()))));
    let params = context.params;
    const times = ({ range: chosen }) => {
      const seconds = Number(chosen) || DAY_S;
      const to = Math.floor(context.now() / 60_000) * 60;
      return { from: to - seconds, to, step: Math.max(stepOf(seconds), Math.ceil(seconds / POINTS_MAX / 60) * 60) };
    };
    const question = () => ['stats_audience', { channel: params.channel ?? '', ...times(params) }];
    function readAudience() {
      if (!params.channel) return audience.empty('Choose a channel, or one of the tops below.');
      return context.ask(...question()).then((result) => {
        audience.ready(context.now());
        top.set(`greatest ${count(result.peak)}`, `about ${plural(result.users, 'different user')}`);
        const line = (label, key) => ({ label, values: result.points.map((one) => one[key]) });
        drawing.set({ times: result.points.map((one) => one.time * 1000), series: [line("at the step's end", 'current'), line('at most', 'peak')] }, context.now());
        if (!result.points.length) audience.empty('There was no audience in this time.');
      }).catch((error) => audience.fail(error, readAudience, 'The audience was not read.'));
    }
    const tabs = tabbed(context, TOPS.map(([of, label, name]) => [of, label, (now) => tops(context, of, name, times(now), now)]));
    root.append(top.root, form, audience.root, ...tabs.root);
    readAudience();
    return {
      update(next) {
        params = next;
        channel.value = params.channel ?? '';
        readAudience();
        tabs.draw(next);
      },
    };
  },
};
