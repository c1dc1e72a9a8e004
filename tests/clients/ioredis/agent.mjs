// The agent of ioredis.
import { Redis } from 'ioredis';
import { serve } from './serve.mjs';

const [host, port, , , keyPrefix] = process.argv.slice(2);
const connect = () => new Redis({ host, port, keyPrefix }).on('error', () => {});
const plain = connect();
const raw = (wait, key, owner) => plain.call('LOCK.ACQUIRE', key, owner, 'BLOCK', wait);
await serve(connect(), plain, raw);
