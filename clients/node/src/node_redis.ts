/** Clients of node-redis 5 and 6: `createClient` and `createCluster`. */
import { answers, Attempt, listen, type Request, type Subscription, type Transport, type Words } from './transport.js';

/** What tells a client of node-redis from others. */
export interface NodeRedisLike {
    readonly isOpen: boolean;
    sendCommand(...args: never[]): Promise<unknown>;
    sSubscribe(...args: never[]): unknown;
    /** Only a pool and a client of Sentinel have it: they have no connection that is theirs alone. */
    readonly acquire?: never;
}

type Listener = (...args: any[]) => void;
type Texts = (message: string, channel: string) => void;

interface Options {
    readonly url?: string;
    readonly socket?: { readonly host?: string; readonly port?: number; readonly path?: string };
    readonly keyPrefix?: string | Buffer;
}

interface Client {
    readonly isOpen: boolean;
    readonly isReady: boolean;
    readonly options?: Options;
    on(event: string, listener: Listener): Client;
    off(event: string, listener: Listener): Client;
    connect(): Promise<unknown>;
    duplicate(overrides: object): Client;
    sendCommand(words: Words, options: object): Promise<unknown>;
    subscribe(channel: string, listener: Texts): Promise<unknown>;
    sSubscribe(channel: string, listener: Texts): Promise<unknown>;
    unsubscribe(channels: readonly string[]): Promise<unknown>;
    sUnsubscribe(channels: readonly string[]): Promise<unknown>;
    ping(): Promise<unknown>;
    ref(): void;
    unref(): void;
    destroy(): void;
}

interface Node {
    readonly address: string;
}

interface Cluster {
    readonly isOpen: boolean;
    readonly slots: readonly { readonly master: Node }[];
    readonly _keyPrefix?: string | Buffer;
    nodeClient(node: Node): Client | Promise<Client>;
    sendCommand(key: string, isReadonly: boolean, words: Words, options: object): Promise<unknown>;
}

/** Replies as texts, whatever the program has set; and no timer of the library, which costs more than the request. */
const PLAIN = { typeMapping: {}, timeout: undefined };

/** Not `createClientPool` and `createSentinel`, which have no connection that is theirs alone. */
export function isNodeRedis(client: any): boolean {
    return typeof client?.sSubscribe === 'function' && typeof client.isOpen === 'boolean' && !('acquire' in client);
}

export class NodeRedis implements Transport {
    readonly name: string;
    readonly isCluster: boolean;
    readonly prefix: string;
    private readonly attempt: Attempt;

    constructor(
        private readonly client: Client & Cluster,
        patience: number,
    ) {
        this.attempt = new Attempt(client, ['error', 'end', 'terminated'], patience);
        this.isCluster = typeof client.nodeClient === 'function';
        const { url, socket, keyPrefix } = client.options ?? {};
        const host = url === undefined ? undefined : new URL(url);
        this.name = this.isCluster
            ? 'the cluster'
            : (socket?.path ??
              `${socket?.host ?? (host?.hostname || 'localhost')}:${socket?.port ?? (host?.port || 6379)}`);
        this.prefix = String(keyPrefix ?? client._keyPrefix ?? '');
    }

    get closed(): string | undefined {
        return this.client.isOpen ? undefined : `${this.name}: the client is closed: call its connect() first`;
    }

    watch(changed: () => void): () => void {
        return listen(this.client, ['end', 'terminated', 'disconnect'], changed);
    }

    connecting(): Promise<unknown> | undefined {
        const { client } = this;
        // A cluster's client connects to each node at its first command.
        if (client.isOpen && (this.isCluster || client.isReady)) return undefined;
        return client.isOpen ? this.attempt.outcome() : Promise.resolve(new Error(this.closed));
    }

    /** node-redis writes all commands of one turn of the event loop together. */
    send(requests: readonly Request[]): void {
        const { client } = this;
        for (const request of requests) {
            const sent = this.isCluster
                ? client.sendCommand(request.key, false, request.words, PLAIN)
                : (client as Client).sendCommand(request.words, PLAIN);
            // node-redis sends no command twice, except after a redirection.
            sent.then(
                (reply) => request.answer({ reply, sends: 1 }),
                (error) => request.answer({ error, sends: 1 }),
            );
        }
    }

    node(slot: number): string {
        return this.isCluster ? (this.client.slots[slot]?.master.address ?? '') : '';
    }

    async open(slot: number, heard: (message: string) => void, ended: () => void): Promise<Subscription> {
        const { client, isCluster } = this;
        const shard = isCluster ? client.slots[slot] : undefined;
        if (isCluster && shard === undefined) throw new Error('no node serves the slot');
        const origin: Client = shard === undefined ? client : await client.nodeClient(shard.master);
        let isClosed = false;
        const destroy = () => {
            try {
                own.destroy();
            } catch {
                // node-redis 5 refuses to close a client twice.
            }
        };
        const own = origin.duplicate({
            socket: { ...origin.options?.socket, reconnectStrategy: false },
            clientSideCache: undefined,
        });
        const close = () => {
            if (isClosed) return;
            isClosed = true;
            destroy();
        };
        const lost = () => {
            if (isClosed) return;
            isClosed = true;
            ended();
            // After node-redis has handled the event itself.
            setImmediate(destroy);
        };
        // `sharded-channel-moved`: the slot is on its way to another node.
        for (const event of ['error', 'end', 'terminated', 'sharded-channel-moved']) own.on(event, lost);
        try {
            await own.connect();
        } catch (error) {
            close();
            throw error;
        }
        return {
            subscribe: (channel) => (isCluster ? own.sSubscribe(channel, heard) : own.subscribe(channel, heard)),
            ping: () => own.ping(),
            leave: (channels) => (isCluster ? own.sUnsubscribe(channels) : own.unsubscribe(channels)),
            call: (commands) => answers(commands.map(({ words }) => own.sendCommand(words, PLAIN))),
            keep: (isWanted) => (isWanted ? own.ref() : own.unref()),
            close,
        };
    }
}
