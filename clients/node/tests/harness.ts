/** Servers and clients for the tests. Each server has a loopback port of its own, and ends with its test file. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster as IoCluster, Redis as IoRedis } from 'ioredis';
import { Cluster as IoCluster5, Redis as IoRedis5 } from 'ioredis5';
import { Cluster as ValkeyCluster, Redis as IoValkey } from 'iovalkey';
import { createClient, createCluster } from 'redis';
import { createClient as createClient5, createCluster as createCluster5 } from 'redis5';
import { LockClient, type LockClientOptions, type RedisClient } from 'redis-lock-client';

const SERVER = process.env['LOCK_SERVER'] ?? 'redis-server';
const MODULE = process.env['LOCK_MODULE'] ?? '';
/** The bound of each wait for a condition: a machine may be busy. */
const PATIENCE = 120_000;

/** Waits until a condition holds. */
export async function until<T>(condition: () => Promise<T> | T, what = String(condition)): Promise<NonNullable<T>> {
    const end = Date.now() + PATIENCE;
    for (;;) {
        const value = await condition();
        if (value) return value;
        if (Date.now() > end) throw new Error(`timed out waiting for ${what}`);
        await sleep(10);
    }
}

export async function freePort(): Promise<number> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    return port;
}

export class Server {
    private child: ChildProcess | undefined;
    private readonly folder = mkdtempSync(join(tmpdir(), 'redis-lock-node-'));
    /** For orders of the test. */
    admin: IoRedis = undefined as never;

    private constructor(
        readonly port: number,
        private readonly options: string[],
    ) {}

    static async start(...options: string[]): Promise<Server> {
        return Server.startWith(['--loadmodule', MODULE], options);
    }

    static async startWith(module: string[], options: string[] = []): Promise<Server> {
        const server = new Server(await freePort(), [...module, ...options]);
        return server.begin();
    }

    /** A primary and its replica. */
    static async pair(): Promise<[primary: Server, replica: Server]> {
        const primary = await Server.start('--repl-diskless-sync-delay', '0');
        const replica = await Server.start('--replicaof', '127.0.0.1', String(primary.port));
        await until(async () => (await primary.call('WAIT', 1, 100)) === 1);
        return [primary, replica];
    }

    /** A Sentinel of this primary, which it calls `main`. */
    static async sentinel(primary: Server): Promise<Server> {
        const server = new Server(await freePort(), []);
        const file = join(server.folder, 'sentinel.conf');
        writeFileSync(file, `sentinel monitor main 127.0.0.1 ${primary.port} 1\n`);
        server.options.push(file, '--sentinel');
        return server.begin();
    }

    private async begin(): Promise<this> {
        after(() => this.remove());
        await this.run();
        return this;
    }

    async run(): Promise<void> {
        const fixed = ['--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--dir', this.folder];
        this.child = spawn(SERVER, [...this.options, ...fixed], { stdio: 'ignore' });
        if (this.admin === undefined) {
            const place = { host: '127.0.0.1', port: this.port };
            this.admin = new IoRedis({ ...place, retryStrategy: () => 20, maxRetriesPerRequest: null });
            this.admin.on('error', () => {});
        }
        await until(() => this.admin.ping());
    }

    /** Stops the process, which keeps its connections and answers nothing. */
    freeze(): void {
        this.child?.kill('SIGSTOP');
    }

    thaw(): void {
        this.child?.kill('SIGCONT');
    }

    async kill(): Promise<void> {
        const { child } = this;
        if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
        const ended = new Promise((resolve) => child.once('exit', resolve));
        child.kill('SIGKILL');
        await ended;
    }

    async remove(): Promise<void> {
        this.admin.disconnect();
        await this.kill();
        rmSync(this.folder, { recursive: true, force: true });
    }

    async call(name: string, ...words: (string | number)[]): Promise<any> {
        return this.admin.call(name, ...words);
    }

    /** A field of `LOCK.INFO`. */
    async waiters(key: string): Promise<number> {
        const info = (await this.call('LOCK.INFO', key)) as unknown[] | null;
        return info === null ? 0 : Number(info[info.indexOf('waiters') + 1]);
    }

    /** When the lease of a lock ends, by the server's clock; after a renewal it is later. */
    async end(key: string): Promise<number> {
        return Number(await this.call('PEXPIRETIME', key));
    }

    async isFree(key: string): Promise<boolean> {
        return (await this.call('LOCK.INFO', key)) === null;
    }
}

/** Moves the slot of a key, with its keys, between two nodes of a cluster. */
export async function moveSlot(key: string, from: Server, to: Server): Promise<void> {
    const slot = Number(await from.call('CLUSTER', 'KEYSLOT', key));
    const [fromId, toId] = [await from.call('CLUSTER', 'MYID'), await to.call('CLUSTER', 'MYID')];
    await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId);
    await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId);
    for (const one of (await from.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[]) {
        await from.call('MIGRATE', '127.0.0.1', to.port, one, 0, 5_000);
    }
    for (const node of [to, from]) await node.call('CLUSTER', 'SETSLOT', slot, 'NODE', toId);
}

/** A client of a library, and its locks. */
export interface Side extends AsyncDisposable {
    readonly redis: RedisClient & { quit?: unknown };
    readonly locks: LockClient;
    readonly warnings: string[];
}

type Connect = (port: number, keyPrefix?: string) => Promise<{ redis: RedisClient; close: () => void }>;

async function nodeRedis(client: any): Promise<{ redis: RedisClient; close: () => void }> {
    client.on('error', () => {});
    await client.connect();
    return { redis: client, close: () => client.isOpen && client.destroy() };
}

async function ioRedis(client: any): Promise<{ redis: RedisClient; close: () => void }> {
    client.on('error', () => {});
    return { redis: client, close: () => client.disconnect() };
}

export const LIBRARIES: Record<string, Connect> = {
    'node-redis 6': (port, keyPrefix) =>
        nodeRedis(
            createClient({ socket: { host: '127.0.0.1', port }, ...(keyPrefix === undefined ? {} : { keyPrefix }) }),
        ),
    'ioredis 6': (port, keyPrefix) =>
        ioRedis(new IoRedis({ host: '127.0.0.1', port, ...(keyPrefix === undefined ? {} : { keyPrefix }) })),
    'node-redis 5': (port) => nodeRedis(createClient5({ url: `redis://127.0.0.1:${port}` })),
    'ioredis 5': (port, keyPrefix) =>
        ioRedis(new IoRedis5({ host: '127.0.0.1', port, ...(keyPrefix === undefined ? {} : { keyPrefix }) })),
    iovalkey: (port, keyPrefix) =>
        ioRedis(new IoValkey({ host: '127.0.0.1', port, ...(keyPrefix === undefined ? {} : { keyPrefix }) })),
};
/** The two that most tests use. */
export const BOTH = ['node-redis 6', 'ioredis 6'];

/** The library's own bound, of a second, is one for a machine that is not busy. */
const PATIENT = { slotsRefreshTimeout: 60_000 };

export const CLUSTERS: Record<string, Connect> = {
    'node-redis 6': (port) => nodeRedis(createCluster({ rootNodes: [{ socket: { host: '127.0.0.1', port } }] })),
    'ioredis 6': (port) => ioRedis(new IoCluster([{ host: '127.0.0.1', port }], PATIENT)),
    'node-redis 5': (port) => nodeRedis(createCluster5({ rootNodes: [{ socket: { host: '127.0.0.1', port } }] })),
    'ioredis 5': (port) => ioRedis(new IoCluster5([{ host: '127.0.0.1', port }], PATIENT)),
    iovalkey: (port) => ioRedis(new ValkeyCluster([{ host: '127.0.0.1', port }], PATIENT)),
};

export async function side(
    connect: Connect,
    port: number,
    options: LockClientOptions & { keyPrefix?: string } = {},
): Promise<Side> {
    const { keyPrefix, ...rest } = options;
    const { redis, close } = await connect(port, keyPrefix);
    const warnings: string[] = [];
    const locks = new LockClient(redis, { onWarning: (text) => warnings.push(text), ...rest });
    return {
        redis,
        locks,
        warnings,
        [Symbol.asyncDispose]: async () => {
            await locks.close();
            close();
        },
    };
}

let last = 0;
/** A name that no other test has. */
export const fresh = (name: string): string => `${name}:${process.pid}:${(last += 1)}`;

export async function failure(promise: Promise<unknown>): Promise<any> {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    throw new Error('no error was thrown');
}
