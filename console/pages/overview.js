// 1 Overview: what is wrong, since when, how many clients it affects, what changed just before, and what to do.
import { fill, h, setText } from '../dom.js';
import { bytes, clock, count, duration, percent, plural, rate, short, since } from '../format.js';
import { spark, thinned } from '../parts/spark.js';
import { head, onDifference, panel, status, tile } from '../parts/states.js';
import { table } from '../parts/table.js';
import { inside } from '../route.js';

const [POINTS, COMPARED_FROM] = [120, 6];

const sum = (nodes, field) => nodes.reduce((total, node) => total + (node[field] ?? 0), 0);
const most = (nodes, field) => nodes.reduce((top, node) => (Number.isFinite(node[field]) ? Math.max(top ?? 0, node[field]) : top), null);
const cores = (nodes) => sum(nodes, 'cores');
const cpu = (nodes) => nodes.reduce((total, node) => total + node.cpu * node.cores, 0) / Math.max(1, cores(nodes));

const TILES = [
  ['connections', 'Connections', (nodes) => sum(nodes, 'connections'), short, count],
  ['deliveries_s', 'Deliveries', (nodes) => sum(nodes, 'deliveries_s'), rate, rate],
  ['publications_s', 'Publishes', (nodes) => sum(nodes, 'publications_s'), rate, rate],
  ['delivery_p99_ms', 'Delivery p99', (nodes) => most(nodes, 'delivery_p99_ms'), duration, duration],
  ['queued_bytes', 'Bytes waiting', (nodes) => sum(nodes, 'queued_bytes'), bytes, (value) => `${count(value)} bytes`],
  ['cpu', 'CPU', cpu, percent, percent],
];

const node = (one) => h('span.short', null, one.name || one.id);
const NODE_COLUMNS = [
  ['Node', node, 1, undefined, (one) => one.id], ['State', (one) => status(one.state), 2], ['Connections', (one) => count(one.connections), 2, 'connections'],
  ['Deliveries', (one) => rate(one.deliveries_s), 2, 'deliveries'], ['Publishes', (one) => rate(one.publications_s), 3, ''],
  ['CPU', (one) => percent(one.cpu), 2, 'CPU', (one) => `of ${plural(one.cores, 'core')}`], ['Memory', (one) => bytes(one.memory), 3, ''],
  ['Waiting', (one) => bytes(one.queued_bytes), 2, 'wait'], ['Slow', (one) => count(one.slow_connections), 3, ''], ['Busiest shard', (one) => percent(one.busiest_shard), 3, '', () => 'of one core'],
  ['Files', (one) => count(one.files), 3, '', (one) => `of ${count(one.files_max)}`],
  ['Drain', (one) => duration(one.drain_s * 1000), 3, '', () => 'if it stops now'],
  ['Version · configuration', (one) => `${one.version} · ${one.config_generation}`, 3],
];

// Actions that have no effect on others.
const UNCAUSING = new Set(['sign in', 'token_check', 'trace']);
const whoOf = ({ who, role }) => [who, role].filter(Boolean).join(', ');

/** "■ 1 thing is bad, 1 needs a look. 412 of 100,412 connections are affected." */
function verdictOf({ verdict, problems }) {
  const bad = problems.filter((one) => one.severity === 'bad').length;
  const look = problems.length - bad;
  if (!problems.length) return 'Nothing is wrong.';
  const parts = [bad && `${plural(bad, 'thing is', 'things are')} bad`, look && `${plural(look, bad ? 'needs' : 'thing needs', bad ? 'need' : 'things need')} a look`];
  const affected = verdict.affected === undefined ? '' : ` ${count(verdict.affected)} of ${count(verdict.connections)} connections are affected.`;
  return `${parts.filter(Boolean).join(', ')}.${affected}`;
}

function problemLine(one, context) {
  // A runbook without its own address is a place in the documentation.
  const runbook = /^https?:/.test(one.runbook) ? h('a', { href: one.runbook, target: '_blank', rel: 'noreferrer noopener' }, 'Runbook') : one.runbook && `More: ${one.runbook}`;
  return h('li.problem-line', null, h('div', null, status(one.severity, one.node ? `${context.nodeName(one.node)}: ${one.words}` : one.words), h('p.soft', null, `Since ${since(one.since_ms, context.now())}. `, one.remedy, ' ', runbook)),
    one.link && h('a.act', { href: inside(one.link) }, 'Show them'));
}

export default {
  mount(root, context) {
    const top = head('Overview');
    const verdict = h('p.verdict', { role: 'status' });
    const before = h('p.soft', null);
    const problemList = h('ul', null);
    const now = panel({ title: 'Now', command: ['overview'], kind: 'now' });
    now.body.append(verdict, before, problemList);
    const tiles = Object.fromEntries(TILES.map(([key, label]) => {
      const line = spark();
      return [key, { ...tile(label, { spark: line }), line }];
    }));
    const nodes = panel({ title: 'Nodes', command: ['overview'] });
    const nodeTable = table({ caption: 'Nodes', columns: NODE_COLUMNS, keyOf: (one) => one.id });
    nodes.body.append(nodeTable.root);
    const dependencies = panel({ title: 'Dependencies', command: ['overview'] });
    const dependencyList = h('ul.dependencies', null);
    dependencies.body.append(dependencyList);
    const changes = panel({ title: 'What changed', command: ['activity'] });
    const changeTable = table({
      caption: 'What changed', keyOf: (one) => `${one.at_ms} ${one.node} ${one.what} ${one.target}`, columns: [
        ['What', (one) => [one.what, one.target].filter(Boolean).join(' ')], ['Time', (one) => clock(one.at_ms, context.now()), 2], ['Who', whoOf, 2],
        ['Node', (one) => context.nodeName(one.node), 3], ['Result', (one) => one.result && status(one.result === 'ok' ? 'ok' : 'bad', one.result), 2],
      ],
    });
    changes.body.append(changeTable.root);
    root.append(top.root, now.root, h('div.tiles.six', null, TILES.map(([key]) => tiles[key].root)), nodes.root,
      h('div.pair', null, dependencies.root, changes.root));
    const panels = [now, nodes, dependencies, changes];
    const drawProblems = onDifference((problems) => fill(problemList, problems.map((one) => problemLine(one, context))));
    const drawDependencies = onDifference((list) => fill(dependencyList, list.map((one) => h('li', null,
      h('b', null, one.name), one.node && h('span.soft', null, ` on ${context.nodeName(one.node)}`), ' ', status(one.state, one.words), one.since_ms ? h('span.soft', null, ` since ${clock(one.since_ms, context.now())}`) : null))));
    function drawVerdict(result) {
      const { problems, activity } = result;
      const text = verdictOf(result);
      if (verdict.textContent !== text) fill(verdict, status(result.verdict.severity, text));
      const first = problems.length ? Math.min(...problems.map((one) => one.since_ms)) : null;
      const cause = activity.find((one) => first && one.result === 'ok' && !UNCAUSING.has(one.what) && one.at_ms <= first && first - one.at_ms < 3_600_000);
      setText(before, !first ? '' : `Since ${since(first, context.now())}.${cause ? ` ${duration(first - cause.at_ms)} before it: ${cause.what} ${cause.target} by ${whoOf(cause)}.` : ''}`);
      const bad = problems.filter((one) => one.severity === 'bad').length;
      context.title(bad ? `■ ${count(bad)} bad` : problems.length ? `▲ ${count(problems.length)}` : '');
    }
    function show(result, at) {
      const missing = result.missing_nodes ?? [];
      for (const one of panels) one.ready(at, missing);
      context.learnNodes(result.nodes);
      drawVerdict(result);
      drawProblems(result.problems);
      for (const [key, , value, form, exact] of TILES) {
        const figure = value(result.nodes);
        const least = missing.length && key !== 'delivery_p99_ms' && key !== 'cpu' ? '≥ ' : '';
        tiles[key].set(least + form(figure), exact(figure), tiles[key].comparison);
      }
      tiles.cpu.name(`CPU of ${plural(cores(result.nodes), 'core')}`);
      nodeTable[nodeTable.size ? 'merge' : 'set'](result.nodes);
      drawDependencies(result.dependencies);
      if (!result.dependencies.length) dependencies.empty('The nodes have no dependencies.');
      if (result.activity.length) changeTable.set(result.activity);
      else changes.empty('Nobody has changed anything since the nodes started.');
    }
    function showHistory({ series, step_ms: step }) {
      for (const [key, , , form] of TILES) {
        // A node writes -1 for a value that it could not measure.
        const values = (series[key] ?? []).map((value) => (value < 0 ? null : value));
        const from = values.findIndex(Number.isFinite);
        const was = from < 0 || from > values.length - COMPARED_FROM ? '' : `was ${form(values[from])} ${duration((values.length - 1 - from) * step)} ago`;
        tiles[key].comparison = was;
        tiles[key].line.set(thinned(values, Math.ceil(values.length / POINTS)), [form(values.at(-1)), was].filter(Boolean).join(', '));
      }
    }
    context.watch('overview', {}, { show, fail: (error) => panels.forEach((one) => one.fail(error, context.again, 'The figures were not read.')) });
    context.watch('overview_history', {}, { show: showHistory, fail: () => {} });
  },
};
