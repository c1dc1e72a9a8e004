/** Requests without an answer: what is served late grants nothing, and nothing stays behind. */
import assert from 'node:assert/strict';
import { connect as connectTo, createServer, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { Redis } from 'ioredis';
import { LockClient } from 'redis-lock-client';
import { BOTH, failure, fresh, LIBRARIES, Server, side, until } from './harness.js';

const server = await Server.start();

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: an acquire that a hung server answers late grants nothing`, async () => {
        await using one = await side(connect, server.port, { responseTimeout: 2_000 });
        await using calm = await side(connect, server.port);
        const key = fresh('late');
        // The connection is open.
        await (await one.locks.lock(fresh('first')).acquire()).release();
        server.freeze();
        const aborted = failure(one.locks.lock(`${key}:aborted`).acquire({ signal: AbortSignal.timeout(50) }));
        const silent = await failure(one.locks.lock(`${key}:silent`).acquire());
        assert.equal(silent.code, 'NO_ANSWER');
        assert.equal((await aborted).name, 'TimeoutError');
        server.thaw();
        for (const name of [`${key}:aborted`, `${key}:silent`]) {
            await using next = await calm.locks.lock(name).acquire();
            assert.ok(next.valid());
        }
        await until(async () => (await server.isFree(`${key}:aborted`)) && (await server.isFree(`${key}:silent`)));
    });

    test(`${library}: a release without an answer is an error in time, and goes on in the background`, async () => {
        await using one = await side(connect, server.port, { responseTimeout: 2_000 });
        const hold = await one.locks.lock(fresh('silent')).acquire();
        server.freeze();
        assert.equal((await failure(hold.release())).code, 'NO_ANSWER');
        server.thaw();
        await until(() => server.isFree(hold.key));
    });

    test(`${library}: a wait on a hung server ends soon after its bound`, async () => {
        await using one = await side(connect, server.port, { responseTimeout: 2_000 });
        const key = fresh('bound');
        await using hold = await one.locks.lock(key).acquire();
        const wait = failure(one.locks.lock(key).acquire({ wait: 4_000 }));
        await until(async () => (await server.waiters(key)) === 1);
        server.freeze();
        const error = await wait;
        server.thaw();
        assert.equal(error.code, 'NO_ANSWER');
        await until(async () => (await server.waiters(key)) === 0);
        assert.ok(hold.token > 0);
    });
}

for (const library of BOTH) {
    test(`${library}: an acquire that arrives after it was given up grants nothing`, async () => {
        const proxy = await Proxy.start(server.port);
        await using one = await side(LIBRARIES[library]!, proxy.port);
        const key = fresh('after');
        await (await one.locks.lock(fresh('first')).acquire()).release();
        const finals = async () => Number(/lock_finals:(\d+)/.exec(String(await server.call('INFO', 'lock')))![1]);
        const before = await finals();
        const controller = new AbortController();
        proxy.holds = true;
        const acquiring = failure(one.locks.lock(key).acquire({ signal: controller.signal }));
        await until(() => proxy.held.length > 0);
        proxy.holds = false;
        proxy.cut();
        controller.abort();
        assert.equal((await acquiring).name, 'AbortError');
        await until(async () => (await finals()) > before && (await server.isFree(key)));
        await proxy.deliver();
        assert.ok(await server.isFree(key));
    });
}

test('ioredis: a request that the library has sent twice is released for good', async () => {
    // The replies of the first connection are lost, and its request is served after the release.
    const proxy = await Proxy.start(server.port);
    const redis = new Redis({
        host: '127.0.0.1',
        port: proxy.port,
        retryStrategy: () => 10,
        enableReadyCheck: false,
        disableClientInfo: true,
        protocol: 2,
    } as object);
    redis.on('error', () => {});
    const locks = new LockClient(redis);
    const key = fresh('twice');
    await until(() => redis.status === 'ready');
    proxy.holds = true;
    const acquiring = locks.lock(key).acquire();
    await until(() => proxy.held.length > 0);
    proxy.holds = false;
    proxy.cut();
    const hold = await acquiring; // sent again
    await hold.release();
    await proxy.deliver(); // the first sending
    assert.ok(await server.isFree(key));
    await locks.close();
    redis.disconnect();
});

test('ioredis: a command under a lock that was sent twice is reported as unheard', async () => {
    const proxy = await Proxy.start(server.port);
    const redis = new Redis({ host: '127.0.0.1', port: proxy.port, retryStrategy: () => 10 });
    redis.on('error', () => {});
    const locks = new LockClient(redis);
    const hold = await locks.lock(fresh('unheard')).acquire();
    proxy.holds = true;
    const running = failure(hold.execute('INCR', fresh('count')));
    await until(() => proxy.held.length > 0);
    proxy.holds = false;
    proxy.cut();
    assert.equal((await running).code, 'UNHEARD');
    await locks.close();
    redis.disconnect();
});

test('ioredis with commandTimeout: a wait finds that its connection for messages is silent', async () => {
    const proxy = await Proxy.start(server.port);
    const redis = new Redis({ host: '127.0.0.1', port: proxy.port, commandTimeout: 200 });
    redis.on('error', () => {});
    const locks = new LockClient(redis, { responseTimeout: 1_000 });
    await using other = await side(LIBRARIES['ioredis 6']!, server.port);
    const key = fresh('silent');
    const hold = await other.locks.lock(key).acquire();
    const waiting = locks.lock(key).acquire({ wait: 60_000 });
    await until(async () => (await server.waiters(key)) === 1);
    proxy.silence();
    await hold.release();
    await (await waiting).release();
    await locks.close();
    redis.disconnect();
});

/** Passes bytes on to a server, and may keep what a client sends. */
class Proxy {
    port = 0;
    holds = false;
    readonly held: Buffer[] = [];
    private readonly pairs: [Socket, Socket][] = [];

    private constructor(private readonly target: number) {}

    static async start(target: number): Promise<Proxy> {
        const proxy = new Proxy(target);
        const listener = createServer((client) => {
            const upstream = connectTo(target, '127.0.0.1');
            proxy.pairs.push([client, upstream]);
            client.on('data', (bytes) => (proxy.holds ? proxy.held.push(bytes) : upstream.write(bytes)));
            upstream.on('data', (bytes) => client.write(bytes));
            for (const socket of [client, upstream])
                socket.on('error', () => {}).on('close', () => (client.destroy(), upstream.destroy()));
        });
        await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
        proxy.port = (listener.address() as { port: number }).port;
        after(() => {
            listener.close();
            proxy.cut();
        });
        return proxy;
    }

    /** Ends all connections of clients. */
    cut(): void {
        for (const [client] of this.pairs) client.destroy();
    }

    /** Nothing more comes over the last connection, and it does not end. */
    silence(): void {
        for (const socket of this.pairs.at(-1)!) socket.removeAllListeners('data').resume();
    }

    /** Sends to the server what was kept, and waits for the replies. */
    async deliver(): Promise<void> {
        const socket = connectTo(this.target, '127.0.0.1');
        socket.write(Buffer.concat(this.held));
        await new Promise((resolve) => socket.once('data', resolve));
        socket.destroy();
    }
}
