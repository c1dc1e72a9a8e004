// Locks of the redis-lock module for node-redis. Times are in milliseconds.
import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorReply } from 'redis';

let last = Date.now() * 1_000; // the number of an acquisition: it rises, over a restart too
// With `keyPrefix`, which node-redis puts before the keys of its own commands only.
const send = (client, name, key, ...words) =>
  client.sendCommand([name, (client.options.keyPrefix ?? '') + key, ...words.map(String)]);

// The fencing token, or null when it was not granted in time.
export async function acquire(client, key, owner, wait, lease) {
  let [until, number, token, lost] = [performance.now() + wait, ++last, null, false];
  // A connection of its own: on the client's everything would wait behind a parked request.
  const socket = { ...client.options.socket, socketTimeout: 5_000, reconnectStrategy: false };
  const own = client.duplicate({ socket }).on('error', () => {});
  const ask = async (...words) => send(own.isOpen ? own : await own.connect(), ...words);
  try {
    for (;;) {
      const block = Math.max(1, Math.min(2_000, Math.floor(until - performance.now())));
      try {
        token = await ask('LOCK.ACQUIRE', key, owner, 'PX', lease, 'BLOCK', block, 'ONCE', 'SEQ', number);
        if (token !== null || performance.now() >= until) return token;
      } catch (error) {
        lost ||= !(error instanceof ErrorReply);
        if (error instanceof ErrorReply || performance.now() >= until) throw error;
        await sleep(50); // then again: ONCE makes that safe
      }
    }
  } finally { // what is still to be served grants nothing
    if (lost && token === null) await ask('LOCK.RELEASE', key, owner, 'FINAL', number).catch(() => {});
    if (own.isOpen) own.destroy();
  }
}

// False: lost, stop working; and not held any more. With the token in them they are sent again safely.
const twice = (...words) => send(...words).catch((e) => (e instanceof ErrorReply ? Promise.reject(e) : send(...words)));
export const renew = async (client, key, owner, token, lease) =>
  1 === await twice(client, 'LOCK.RENEW', key, owner, 'PX', lease, 'TOKEN', token);
export const release = async (client, key, owner, token) =>
  1 === await twice(client, 'LOCK.RELEASE', key, owner, 'ALL', 'TOKEN', token);
