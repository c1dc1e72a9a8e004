// The agent of node-redis' tickets.
import { createClient, createCluster } from 'redis';
import { serve } from './serve_tickets.mjs';

const [host, port, , shard, keyPrefix] = process.argv.slice(2);
const url = `redis://${host}:${port}`;
const client = shard ? createCluster({ rootNodes: [{ url }] }) : createClient({ url, keyPrefix });
await serve(await client.on('error', () => {}).connect(), shard);
