// Machines on one computer: network namespaces on a separate switch, whose links can be cut and slowed. Needs root and iproute2.
import { execFileSync } from 'node:child_process';
import { spawn } from './processes.mjs';

const ip = (...words) => execFileSync('ip', words, { stdio: ['ignore', 'pipe', 'pipe'] }).toString();
let serial = 0;

export class Network {
  /** Makes `count` machines. The other machines and the test can reach the address of each. */
  constructor(count) {
    const id = `${process.pid.toString(36)}${serial++}`;
    this.subnet = `10.${20 + (process.pid % 200)}.${serial}`;
    this.hub = `tl-${id}-hub`;
    this.machines = Array.from({ length: count }, (_, n) => `tl-${id}-${n}`);
    this.outside = `tl${id}`.slice(0, 12);
    ip('netns', 'add', this.hub);
    ip('-n', this.hub, 'link', 'add', 'switch', 'type', 'bridge');
    ip('-n', this.hub, 'link', 'set', 'switch', 'up');
    ip('link', 'add', this.outside, 'type', 'veth', 'peer', 'name', 'test', 'netns', this.hub);
    this.plug('test');
    ip('addr', 'add', `${this.subnet}.254/24`, 'dev', this.outside);
    ip('link', 'set', this.outside, 'up');
    this.machines.forEach((machine, n) => {
      ip('netns', 'add', machine);
      ip('-n', this.hub, 'link', 'add', `port${n}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', machine);
      this.plug(`port${n}`);
      ip('-n', machine, 'addr', 'add', `${this.address(n)}/24`, 'dev', 'eth0');
      ip('-n', machine, 'link', 'set', 'eth0', 'up');
      ip('-n', machine, 'link', 'set', 'lo', 'up');
    });
  }

  plug(port) {
    ip('-n', this.hub, 'link', 'set', port, 'master', 'switch');
    ip('-n', this.hub, 'link', 'set', port, 'up');
  }

  address(machine) { return `${this.subnet}.${machine + 1}`; }

  /** The command and the arguments that run a program on a machine. */
  on(machine, command) { return ['ip', 'netns', 'exec', this.machines[machine], ...command]; }

  spawn(machine, command) {
    const [program, ...words] = this.on(machine, command);
    return spawn(program, words, { stdio: ['ignore', 'ignore', 'pipe'] });
  }

  /** Drops all packets between two machines, in both directions. The test can still reach both. */
  cut(a, b) {
    for (const [from, to] of [[a, b], [b, a]]) ip('-n', this.machines[from], 'route', 'replace', 'blackhole', `${this.address(to)}/32`);
  }

  heal() {
    for (const machine of this.machines) {
      for (const line of ip('-n', machine, 'route', 'show', 'type', 'blackhole').split('\n').filter(Boolean)) {
        ip('-n', machine, 'route', 'del', ...line.trim().split(' ').slice(0, 2));
      }
    }
  }

  /** Limits the bits per second that a machine can send. */
  slow(machine, rate) {
    execFileSync('tc', ['-n', this.machines[machine], 'qdisc', 'replace', 'dev', 'eth0', 'root', 'tbf', 'rate', rate, 'burst', '16kb', 'latency', '400ms']);
  }

  fast(machine) { execFileSync('tc', ['-n', this.machines[machine], 'qdisc', 'del', 'dev', 'eth0', 'root']); }

  destroy() {
    for (const machine of [...this.machines, this.hub]) {
      try { ip('netns', 'del', machine); } catch { /* it was never made */ }
    }
  }
}
