// The loop of the agents of Node's clients that run orders at the same time: `ID order words...` on a line, and
// `ID answer`, as driver/ticket_agent.rs lists them. `running` has what cancels each acquire, by the order's ID.
import { createInterface } from 'node:readline';

export async function serveOrders(orders, running) {
  console.log('ready');
  for await (const line of createInterface({ input: process.stdin })) {
    const [id, order, ...words] = line.split(' ');
    if (order === 'cancel') running.get(words[0]).abort();
    else {
      orders[order](id, ...words)
        .catch((error) => `error ${error}`.replaceAll('\n', ' '))
        .then((answer) => console.log(`${id} ${answer}`));
    }
  }
  process.exit();
}
