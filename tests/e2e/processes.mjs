// Processes that end with the test that started them, also if the test fails or does not stop them.
import { spawn as start } from 'node:child_process';

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export function spawn(...words) {
  const child = start(...words);
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}
