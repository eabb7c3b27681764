// 11 Consumers: sources of commands besides requests, and how far behind they are.
import { count, duration, UNKNOWN } from '../format.js';
import { listing } from '../parts/listing.js';
import { head, status } from '../parts/states.js';

export default {
  mount(root, context) {
    const list = listing(context, {
      title: 'Consumers', operation: 'consumers', whole: true, rows: (result) => result.consumers, keyOf: (row) => `${row.name}\n${row.node}`,
      none: 'No consumer is configured. The key consumers lists them.',
      columns: [
        ['Consumer', (row) => row.name], ['Node', (row) => context.nodeName(row.node), 2], ['Behind by', (row) => count(row.waiting), 2, 'behind'],
        ['Oldest', (row) => (row.oldest_s ? duration(row.oldest_s * 1000) : UNKNOWN), 2, ''], ['Retrying', (row) => count(row.retrying), 3, ''], ['Unread', (row) => count(row.unread), 3, ''],
        ['State', (row) => status(row.state), 2],
      ],
    });
    root.append(head('Consumers').root, list.root);
  },
};
