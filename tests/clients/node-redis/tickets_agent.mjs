// The agent of node-redis' tickets.
import { createClient, createCluster } from 'redis';
import { serve } from './serve_tickets.mjs';

const [host, port, , shard] = process.argv.slice(2);
const url = `redis://${host}:${port}`;
const client = shard ? createCluster({ rootNodes: [{ url }] }) : createClient({ url });
await serve(await client.on('error', () => {}).connect(), shard);
