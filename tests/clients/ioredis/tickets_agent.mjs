// The agent of ioredis' tickets.
import { Cluster, Redis } from 'ioredis';
import { serve } from './serve_tickets.mjs';

const [host, port, , shard] = process.argv.slice(2);
const connect = () => (shard ? new Cluster([{ host, port }], { shardedSubscribers: true }) : new Redis({ host, port }));
await serve(connect().on('error', () => {}), shard);
