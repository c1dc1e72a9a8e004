// The agent of node-redis.
import { createClient } from 'redis';
import { serve } from './serve.mjs';

const [host, port, , , keyPrefix] = process.argv.slice(2);
const connect = () => createClient({ socket: { host, port }, keyPrefix }).on('error', () => {}).connect();
const plain = await connect();
const raw = (wait, key, owner) => plain.sendCommand(['LOCK.ACQUIRE', key, owner, 'BLOCK', wait]);
await serve(await connect(), plain, raw);
