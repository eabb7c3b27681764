// A reporter of Node that prints when a test begins. TAP prints a test only at its end, so that a test that hangs would have no name.
export default async function* begins(source) {
  for await (const { type, data } of source) {
    const isTest = type === 'test:dequeue' && !data.name.endsWith('.mjs');
    if (isTest) yield `# begins: ${data.name.replaceAll('\n', ' ')}\n`;
  }
}
