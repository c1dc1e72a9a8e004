// What the agents of tickets of Node's clients share: the orders of driver/ticket_agent.rs.
import { serveOrders } from './serve_orders.mjs';
import { Tickets } from './tickets.mjs';

export async function serve(client, shard) {
  const tickets = new Tickets(client, shard);
  const running = new Map(); // what cancels each acquire

  async function acquire(id, key, owner, wait, lease) {
    const controller = new AbortController();
    running.set(id, controller);
    try {
      const token = await tickets.acquire(key, owner, Number(wait), Number(lease), controller.signal);
      return token === null ? 'nil' : `token ${token}`;
    } catch (error) {
      return controller.signal.aborted ? 'cancelled' : Promise.reject(error);
    }
  }

  const orders = {
    acquire,
    renew: async (id, ...words) => Number(await tickets.renew(...words)),
    release: async (id, ...words) => Number(await tickets.release(...words)),
  };

  await serveOrders(orders, running);
}
