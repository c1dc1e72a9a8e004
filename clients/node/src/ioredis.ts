/** Clients of ioredis 5 and 6 and of iovalkey: `Redis` and `Cluster`. */
import { slotOf } from './slot.js';
import { answers, Attempt, listen, type Request, type Subscription, type Transport, type Words } from './transport.js';

/** What tells a client of ioredis from others. */
export interface IoRedisLike {
    readonly status: string;
    readonly isCluster: boolean;
}

type Listener = (...args: any[]) => void;

interface Options {
    readonly host?: string;
    readonly port?: number;
    readonly path?: string;
    readonly keyPrefix?: string | Buffer;
    readonly enableAutoPipelining?: boolean;
}

interface Pipeline {
    call: Redis['call'];
    exec(callback?: (error: Error | null, replies?: [error: Error | null, reply: unknown][]) => void): Promise<unknown>;
}

interface Redis {
    readonly status: string;
    readonly options: Options;
    readonly stream?: { ref?(): void; unref?(): void };
    call(name: unknown, words: Words, callback?: (error: Error | null, reply: unknown) => void): Promise<unknown>;
    on(event: string, listener: Listener): Redis;
    off(event: string, listener: Listener): Redis;
    connect(): Promise<unknown>;
    duplicate(overrides: object): Redis;
    pipeline(): Pipeline;
    subscribe(channel: string): Promise<unknown>;
    ssubscribe(channel: string): Promise<unknown>;
    unsubscribe(...channels: string[]): Promise<unknown>;
    sunsubscribe(...channels: string[]): Promise<unknown>;
    ping(): Promise<unknown>;
    disconnect(): void;
}

interface Cluster {
    readonly slots: readonly (readonly string[])[];
    nodes(role: string): Redis[];
}

export function isIoRedis(client: any): boolean {
    return (
        typeof client?.status === 'string' &&
        typeof client.isCluster === 'boolean' &&
        typeof client.sendCommand === 'function'
    );
}

/** What a node of a cluster refuses, and another one may serve. */
const ELSEWHERE = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /;

/** Sends a command through a client, or in its pipeline; in a cluster through that of the node. */
function call(client: Redis, request: Request, pipeline?: Pipeline, cluster?: Redis): void {
    const { stream } = client;
    const [name, words] = [request.words[0]!, request.words.slice(1)];
    const take = (error: Error | null | undefined, reply?: unknown) => {
        if (error && cluster && ELSEWHERE.test(error.message)) return call(cluster, request);
        // The library sends it again over the next connection when one ends. Those of a cluster are not known.
        const sends = stream !== undefined && client.stream === stream ? 1 : 2;
        request.answer(error ? { error, sends } : { reply, sends });
    };
    if (pipeline === undefined && client.options.enableAutoPipelining) {
        // Else the library puts it into a pipeline with commands of the program, which is sent later: what is given up
        // may overtake the request; where one of them succeeds none is redirected; and a slot without a node throws.
        const own = client.pipeline();
        own.call(name, words);
        own.exec((failure, replies) => {
            const [error, reply] = replies?.[0] ?? [failure, undefined];
            take(error, reply);
        }).catch(() => {});
    } else (pipeline ?? client).call(name, words, take);
}

export class IoRedis implements Transport {
    readonly name: string;
    readonly isCluster: boolean;
    readonly prefix: string;
    private readonly attempt: Attempt;

    constructor(
        private readonly client: Redis & Cluster & { readonly isCluster: boolean },
        patience: number,
    ) {
        this.isCluster = client.isCluster;
        this.attempt = new Attempt(client, ['error', 'node error', 'end'], patience);
        const { host, port, path, keyPrefix } = client.options;
        this.name = this.isCluster ? 'the cluster' : (path ?? `${host ?? 'localhost'}:${port ?? 6379}`);
        this.prefix = String(keyPrefix ?? '');
    }

    get closed(): string | undefined {
        return this.client.status === 'end' ? `${this.name}: the client is closed` : undefined;
    }

    watch(changed: () => void): () => void {
        return listen(this.client, ['end'], changed);
    }

    connecting(): Promise<unknown> | undefined {
        const { client } = this;
        if (client.status === 'ready') return undefined;
        if (client.status === 'end') return Promise.resolve(new Error('Connection is closed.'));
        if (client.status === 'wait') client.connect().catch(() => {});
        return this.attempt.outcome();
    }

    send(requests: readonly Request[]): void {
        const { client, isCluster, prefix } = this;
        const pipeline = isCluster || requests.length < 2 ? undefined : client.pipeline();
        for (const request of requests) {
            const { key, words } = request;
            // The library does not know the key of a module's command, so its client of a cluster would ask any node.
            // That is the way when the node of the key is not known, or refuses: the library follows redirections.
            const node = isCluster ? this.nodeOf(slotOf(key)) : undefined;
            // It knows this one, and puts the prefix before its key.
            if (words[0] === 'EXISTS') {
                const bare = ['exists', key.slice(prefix.length)];
                call(client, { key, words: bare, answer: (answer) => request.answer(answer) });
            } else if (node) call(node, request, undefined, client);
            else call(client, request, pipeline);
        }
        pipeline?.exec().catch(() => {});
    }

    private nodeOf(slot: number): Redis | undefined {
        const name = this.node(slot);
        return this.client.nodes('all').find(({ options }) => `${options.host}:${options.port}` === name);
    }

    node(slot: number): string {
        return this.isCluster ? (this.client.slots[slot]?.[0] ?? '') : '';
    }

    async open(slot: number, heard: (message: string) => void, ended: () => void): Promise<Subscription> {
        const { client, isCluster } = this;
        const origin = isCluster ? this.nodeOf(slot) : client;
        if (origin === undefined) throw new Error('no node serves the slot');
        const own = origin.duplicate({
            keyPrefix: '',
            lazyConnect: true,
            readOnly: false,
            retryStrategy: null,
            autoResubscribe: false,
            autoResendUnfulfilledCommands: false,
            enableAutoPipelining: false,
            // Its error would pass for the reply to a probe.
            commandTimeout: undefined,
        });
        let isClosed = false;
        let cause: unknown;
        const lost = (error?: unknown) => {
            cause ??= error;
            if (isClosed) return;
            isClosed = true;
            own.disconnect();
            ended();
        };
        const close = () => {
            isClosed = true;
            own.disconnect();
        };
        // When a slot is on its way to another node, ioredis 6 says so, and before it is an unexpected reply.
        own.on('error', lost)
            .on('moved', () => lost())
            .on('close', () => lost());
        own.on(isCluster ? 'smessage' : 'message', (_channel: string, text: string) => heard(text));
        try {
            await own.connect();
        } catch (error) {
            close();
            throw cause ?? error;
        }
        return {
            subscribe: (channel) => (isCluster ? own.ssubscribe(channel) : own.subscribe(channel)),
            ping: () => own.ping(),
            leave: (channels) => (isCluster ? own.sunsubscribe(...channels) : own.unsubscribe(...channels)),
            call: (commands) => answers(commands.map(({ words: [name, ...words] }) => own.call(name, words))),
            keep: (isWanted) => (isWanted ? own.stream?.ref?.() : own.stream?.unref?.()),
            close,
        };
    }
}
