/** Compiled only: the clients of all libraries are taken as they are, without pools and Sentinel's of node-redis. */
import type { Cluster, Redis } from 'ioredis';
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import type { Cluster as ValkeyCluster, Redis as Valkey } from 'iovalkey';
import type { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import type {
    createClient as createClient5,
    createClientPool as createClientPool5,
    createCluster as createCluster5,
    createSentinel as createSentinel5,
} from 'redis5';
import type { RedisClient } from 'redis-lock-client';

export type Taken = [
    ...(Cluster | Redis | Cluster5 | Redis5 | ValkeyCluster | Valkey)[],
    ReturnType<typeof createClient> | ReturnType<typeof createCluster>,
    ReturnType<typeof createClient5> | ReturnType<typeof createCluster5>,
];
export const taken = (clients: Taken): RedisClient[] => clients;

/** What the constructor refuses, the types refuse. */
type Refused<T> = T extends RedisClient ? never : true;
export const refused: Refused<ReturnType<typeof createClientPool>> &
    Refused<ReturnType<typeof createSentinel>> &
    Refused<ReturnType<typeof createClientPool5>> &
    Refused<ReturnType<typeof createSentinel5>> = true;
