// The dashboard, the alerts and their guide: promtool checks them, and a real Prometheus scrapes two servers and runs every query.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { Prometheus, Watched } from './monitoring.mjs';
import { LIMIT, until } from './patience.mjs';

const run = promisify(execFile);
const promtool = process.env.PROMTOOL_BIN ?? 'promtool';
const root = new URL('../../', import.meta.url).pathname;
const read = (path) => readFileSync(join(root, path), 'utf8');
const RULES = 'packaging/alerts/touchline.rules.yaml';
const TESTS = 'packaging/alerts/touchline.tests.yaml';
const GUIDE = 'docs/guides/monitoring.md';

const dashboard = JSON.parse(read('packaging/grafana/touchline.json'));
const rows = dashboard.panels.filter(({ type }) => type === 'row');
/** The panels, including panels in collapsed rows. */
const panels = dashboard.panels.flatMap((panel) => (panel.type === 'row' ? panel.panels : [panel]));
const alertsOf = (text) => [...text.matchAll(/^ +- alert: (\w+)$/gm)].map(([, name]) => name);
const alerts = alertsOf(read(RULES));

/** Metrics that Prometheus makes itself. */
const OF_PROMETHEUS = ['up', 'ALERTS'];

const VALUES = { job: 'touchline', instance: '.*', namespace: '.*', __rate_interval: '1m' };
const filledIn = (query) => query.replaceAll(/\$(\w+)/g, (_, name) => VALUES[name] ?? assert.fail(`${query}: there is no variable ${name}`));
/** The names of the metrics in a query. */
const metricsOf = (query) => query.replaceAll(/"[^"]*"/g, '""').match(/\b(touchline_\w+|process_\w+|up|ALERTS)\b/g) ?? [];
/** The name that a scrape uses to describe a metric of a query. */
const described = (metric, types) => {
  const family = metric.replace(/_(bucket|sum|count)$/, '');
  return types.get(metric) ?? (types.get(family) === 'histogram' ? 'histogram' : undefined);
};

test('the rules are rules, and each fires when it should and not when it should not', LIMIT, async () => {
  const options = { cwd: join(root, 'packaging/alerts') };
  const checked = await run(promtool, ['check', 'rules', 'touchline.rules.yaml'], options);
  assert.match(checked.stdout, new RegExp(`SUCCESS: ${alerts.length} rules found`));
  assert.match((await run(promtool, ['test', 'rules', 'touchline.tests.yaml'], options)).stdout, /SUCCESS/);
});

test('each alert has a section of the guide, a line in its table, and a test with a firing series', () => {
  assert.ok(alerts.length > 25 && new Set(alerts).size === alerts.length, `${alerts}`);
  const [rules, tests, guide] = [RULES, TESTS, GUIDE].map(read);
  for (const part of rules.split(/^ +- alert: /m).slice(1)) {
    const name = part.match(/^\w+/)[0];
    assert.match(part, /^ +for: \d+[mh]$/m, name);
    assert.match(part, /^ +labels: \{severity: (page|ticket)\}$/m, name);
    for (const annotation of ['summary', 'description']) assert.match(part, new RegExp(`^ +${annotation}: .{10}`, 'm'), name);
    const anchor = part.match(/^ +runbook: docs\/guides\/monitoring\.md#(\S+)$/m)?.[1];
    assert.equal(anchor, name.toLowerCase(), name);
    const section = guide.split(`\n### ${name}\n`)[1]?.split(/\n##/)[0];
    assert.ok(section, `${name} has a section`);
    for (const word of ['Meaning', 'Who is hit', 'Look at', 'Do']) assert.ok(section.includes(`- **${word}**: `), `${name}: ${word}`);
    const severity = part.match(/severity: (\w+)/)[1];
    assert.match(guide, new RegExp(`^\\| \\[${name}\\]\\(#${anchor}\\) \\| ${severity} \\|`, 'm'));
    const own = tests.split(/^  - name: /m).filter((one) => one.startsWith(`"${name}: `) && new RegExp(`alertname: ${name}\n +exp_alerts:\n`).test(one));
    assert.ok(own.some((one) => one.match(/^ +- \{series: /gm)?.length > 1), `${name} fires in a test, for one of several series`);
  }
  const sections = [...guide.matchAll(/^### (Touchline\w+)$/gm)].map(([, name]) => name);
  assert.deepEqual(sections, alerts, 'sections stand in the order of the rules');
});

test('the dashboard is whole', () => {
  const ids = [...rows, ...panels].map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, 'each panel has a number of its own');
  assert.ok(panels.length > 90, `${panels.length} panels`);
  for (const panel of panels) {
    const { title, description, fieldConfig, targets, datasource, gridPos } = panel;
    assert.ok(title && fieldConfig.defaults.unit, title);
    assert.match(description, /^[A-Z0-9].*\. Worry .*\.$/, title);
    assert.ok(targets.length > 0 && gridPos.w <= 24 && gridPos.x + gridPos.w <= 24, title);
    assert.equal(datasource.uid, '${datasource}', title);
    for (const { expr, legendFormat } of targets) {
      assert.ok(legendFormat, `${title} has legends`);
      const ofNodes = expr.replaceAll(/ALERTS\{[^}]*\}/g, '').match(/\w+\{[^}]*\}/g) ?? [];
      assert.ok(ofNodes.length === metricsOf(expr).filter((name) => name !== 'ALERTS').length, `${title}: ${expr}`);
      for (const selected of ofNodes) assert.match(selected, /\{job=~"\$job", instance=~"\$instance"/, `${title}: ${expr}`);
      if (/sum by \(namespace/.test(expr)) assert.match(expr, /namespace=~"\$namespace"/, title);
    }
  }
  const places = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) => Array.from({ length: w * h }, (_, n) => `${x + (n % w)}:${y + Math.floor(n / w)}`));
  assert.equal(new Set(places).size, places.length, 'no panel lies on another');
  const variables = Object.fromEntries(dashboard.templating.list.map((variable) => [variable.name, variable]));
  assert.deepEqual(Object.keys(variables), ['datasource', 'job', 'instance', 'namespace']);
  assert.ok(variables.instance.multi && variables.instance.includeAll && variables.namespace.includeAll);
  assert.deepEqual(rows.filter(({ collapsed }) => !collapsed).map(({ title }) => title), [
    'Now', 'Clients', 'Channels by namespace', 'Server API', 'Limits and slow clients', 'Process',
  ]);
});

describe('a Prometheus that scrapes two servers', LIMIT, () => {
  let watched;
  let prometheus;
  /** The types of the metrics, by name. */
  const types = new Map();
  before(async () => {
    watched = new Watched();
    await watched.start();
    prometheus = await Prometheus.start(watched.servers.map(({ port }) => `127.0.0.1:${port}`), join(root, RULES));
    await watched.act(1);
    for (const { http } of watched.servers) {
      // once: the names do not change.
      const text = await (await fetch(`${http}/metrics`)).text();
      for (const [, name, kind] of text.matchAll(/^# TYPE (\w+) (\w+)$/gm)) types.set(name, kind);
    }
    // The first round creates the series of new labels. The second round increases them, and several scrapes read them.
    const scrapes = async (count) => Number((await prometheus.query('count_over_time(touchline_errors_total{code="103"}[1m])'))[0]?.value[1] ?? 0) >= count;
    await until(() => scrapes(2), () => 'two scrapes');
    await watched.act(2);
    await until(() => scrapes(4), () => 'four scrapes');
  });
  after(async () => {
    await prometheus?.stop();
    await watched?.stop();
  });

  const isKnown = (metric) => described(metric, types) !== undefined || OF_PROMETHEUS.includes(metric);
  const unknownIn = (query) => metricsOf(query).filter((metric) => !isKnown(metric));

  test('it is answered every query of the dashboard, and each shows something', async () => {
    const broken = [];
    for (const panel of panels) {
      for (const { expr } of panel.targets) {
        broken.push(...unknownIn(expr).map((metric) => `${panel.title}: there is no metric ${metric}`));
        const series = await prometheus.query(filledIn(expr)).catch((error) => broken.push(`${panel.title}: ${error.message}`));
        if (series?.length === 0) broken.push(`${panel.title}: no series of ${expr}`);
      }
    }
    for (const { expr } of dashboard.annotations.list.filter(({ expr }) => expr)) {
      assert.deepEqual(unknownIn(expr), []);
      await prometheus.query(filledIn(expr));
    }
    assert.deepEqual(broken, []);
  });

  test('the variables of the dashboard have values', async () => {
    for (const { name, query } of dashboard.templating.list.filter(({ type }) => type === 'query')) {
      const [, selector, label] = query.query.match(/^label_values\((.*), (\w+)\)$/);
      assert.deepEqual(unknownIn(selector), []);
      const { data } = await prometheus.get(`label/${label}/values`, { 'match[]': filledIn(selector) });
      assert.ok(data.length > 0, name);
      if (name === 'namespace') for (const value of ['history', 'kept', 'without', 'other']) assert.ok(data.includes(value), `${data}`);
    }
  });

  test('it evaluates every rule, and only alerts of real faults fire', async () => {
    const { data } = await prometheus.get('rules');
    const rules = data.groups.flatMap((group) => group.rules);
    assert.deepEqual(rules.map(({ name }) => name).sort(), [...alerts].sort());
    for (const { name, query, health, lastError } of rules) {
      assert.deepEqual(unknownIn(query), [], name);
      assert.ok(metricsOf(query).length > 0, name);
      assert.equal(health, 'ok', `${name}: ${lastError}`);
      await prometheus.query(query);
    }
    const states = async () => (await prometheus.get('rules')).data.groups.flatMap((group) => group.rules);
    // The test's certificate is valid for two days, the consumer has no database, and some of the few calls have no key. An alert of a slow
    // machine may be pending.
    const expected = /^Touchline(CertificateExpires|ConsumerStuck|ApiCallersRefused|\w*Slow)/;
    await until(async () => (await states()).some(({ name, state }) => name === 'TouchlineCertificateExpires' && state !== 'inactive'));
    assert.deepEqual((await states()).filter(({ name, state }) => state === 'firing' && !expected.test(name)).map(({ name }) => name), []);
  });

  test('alerts fire for a node that loses NATS, and for one that ends', async () => {
    const told = async (name) => (await prometheus.query(`ALERTS{alertname="${name}"}`)).map(({ metric }) => metric.instance);
    const instances = watched.servers.map(({ port }) => `127.0.0.1:${port}`);
    await until(async () => [...await told('TouchlineCutOff'), ...await told('TouchlineNodeDown')].length === 0, 'no such alert');
    await watched.nats.kill();
    for (const name of ['TouchlineCutOff', 'TouchlineNodeNotReady']) {
      await until(async () => (await told(name)).join() === instances[1], () => `${name} for the node of the cluster`);
    }
    await watched.server.stop('SIGKILL');
    await until(async () => (await told('TouchlineNodeDown')).join() === instances[0], () => 'the alert for the node that has ended');
  });

  test('a metric and a variable that do not exist are found', () => {
    assert.ok(types.size > 100, `${types.size} metrics`);
    assert.deepEqual([described('touchline_no_such_total', types), described('touchline_connections_bucket', types)], [undefined, undefined]);
    assert.throws(() => filledIn('up{job="$nothing"}'), /no variable nothing/);
  });
});
