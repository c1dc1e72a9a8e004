// An HTTP service, of which several processes run: `POST /orders/7` charges order 7 once, whichever of them gets it.
// Run: npm install redis redis-lock-client-*.tgz; node orders.mjs redis://127.0.0.1:6379 http://payments.example 8080
import { createServer } from 'node:http';
import { createClient } from 'redis';
import { LockClient } from 'redis-lock-client';

const [url = 'redis://127.0.0.1:6379', payments = 'http://127.0.0.1:8081', port = '8080'] = process.argv.slice(2);
const redis = createClient({ url }).on('error', (error) => console.error('redis:', error.message));
await redis.connect(); // waits for a server that is away
const locks = new LockClient(redis);

async function charge(order, signal) {
    await locks.using(`order:${order}`, { lease: 10_000, wait: 2_000, signal }, async (hold) => {
        if ((await hold.execute('GET', `charged:${order}`)) !== null) return; // by a request before
        const answer = await fetch(`${payments}/charges/${order}`, {
            method: 'POST',
            headers: { 'Idempotency-Key': order }, // charged once, also when it is asked for again after a loss
            signal: AbortSignal.any([signal, hold.signal]), // also ends when the lock is lost
        });
        if (!answer.ok) throw new Error(`payments: ${answer.status}`);
        await hold.execute('SET', `charged:${order}`, hold.token); // throws, and writes nothing, after a loss
    });
}

const server = createServer(async (request, response) => {
    const order = /^\/orders\/(\w+)$/.exec(request.url)?.[1];
    if (request.method !== 'POST' || order === undefined) return response.writeHead(404).end();
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    try {
        await charge(order, AbortSignal.any([gone.signal, AbortSignal.timeout(60_000)]));
        response.end('charged\n');
    } catch (error) {
        console.error(`order ${order}:`, error.message);
        // 409: another request has the order. 503: the same request may be sent again, a charge counts once.
        response.writeHead(error.code === 'NOT_ACQUIRED' ? 409 : 503).end(`${error.message}\n`);
    }
});
server.listen(Number(port), '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));

// Takes no new requests, waits for those that are under way, and ends with status 0.
process.once('SIGTERM', () => server.close(() => locks.close().then(() => redis.destroy())));
