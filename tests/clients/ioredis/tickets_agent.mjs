// The agent of ioredis' tickets.
import { Cluster, Redis } from 'ioredis';
import { serve } from './serve_tickets.mjs';

const [host, port, , shard, keyPrefix] = process.argv.slice(2);
const connect = () =>
  shard ? new Cluster([{ host, port }], { shardedSubscribers: true }) : new Redis({ host, port, keyPrefix });
await serve(connect().on('error', () => {}), shard);
