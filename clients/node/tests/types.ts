/** Compiled only: the clients of all libraries are taken as they are. */
import type { Cluster, Redis } from 'ioredis';
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import type { Cluster as ValkeyCluster, Redis as Valkey } from 'iovalkey';
import type { createClient, createCluster } from 'redis';
import type { createClient as createClient5, createCluster as createCluster5 } from 'redis5';
import type { RedisClient } from 'redis-lock-client';

export type Taken = [
    ...(Cluster | Redis | Cluster5 | Redis5 | ValkeyCluster | Valkey)[],
    ReturnType<typeof createClient> | ReturnType<typeof createCluster>,
    ReturnType<typeof createClient5> | ReturnType<typeof createCluster5>,
];
export const taken = (clients: Taken): RedisClient[] => clients;
