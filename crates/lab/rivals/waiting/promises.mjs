// The rival `promises` of `touchline-lab waiting`: each asynchronous function calls another function and waits for its
// answer.
// Usage: node promises.mjs COUNT SECONDS. Prints `ready`, `waiting COUNT` and `done`.
const [count, seconds] = process.argv.slice(2).map(Number);

const names = Array.from({ length: 100 }, () => (data) => new Promise((resolve) => { setTimeout(resolve, seconds * 1000, data); }));
const call = async (n) => (await names[n % names.length](n)) + 1;

console.log('ready');
const calls = Array.from({ length: count }, (_, n) => call(n));
console.log(`waiting ${count}`);
await Promise.all(calls);
console.log('done');
process.stdin.resume(); // The kernel's figures of this process can be read while the process runs.
