// The rival `node` of `touchline-lab http`: node's own HTTP server. Prints its address.
import { createServer } from 'node:http';

const server = createServer(({ url }, response) => {
  const value = new URL(url, 'http://localhost').searchParams.get('value') ?? '';
  response.setHeader('Content-Type', 'text/xml').end(`<http_test><value>${value}</value></http_test>`);
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => console.log(`127.0.0.1:${server.address().port}`));
