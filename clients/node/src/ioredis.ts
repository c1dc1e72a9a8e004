/** Clients of ioredis 5 and 6 and of iovalkey: `Redis` and `Cluster`. */
import { type Answer, Attempt, type Command, listen, type Subscription, type Transport } from './transport.js';

/** What tells a client of ioredis from others. */
export interface IoRedisLike {
    readonly status: string;
    readonly isCluster: boolean;
}

type Listener = (...args: any[]) => void;

/** A command of the library, which the library may send several times. */
interface Sent {
    getKeys(): unknown[];
    toWritable(...args: unknown[]): unknown;
}

interface Options {
    readonly host?: string;
    readonly port?: number;
    readonly path?: string;
    readonly keyPrefix?: string | Buffer;
}

interface Redis {
    readonly status: string;
    readonly options: Options;
    readonly stream?: { ref?(): void; unref?(): void };
    call(...words: unknown[]): unknown;
    on(event: string, listener: Listener): Redis;
    off(event: string, listener: Listener): Redis;
    connect(): Promise<unknown>;
    duplicate(overrides: object): Redis;
    sendCommand(command: Sent): Promise<unknown>;
    pipeline(): { call(...words: unknown[]): unknown; exec(): Promise<[error: unknown, reply: unknown][] | null> };
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

export class IoRedis implements Transport {
    readonly name: string;
    readonly isCluster: boolean;
    readonly prefix: string;
    private readonly attempt: Attempt;
    /** Makes commands and sends none: the class of commands cannot be had from a client. */
    private readonly maker: { call(...words: unknown[]): unknown };

    constructor(
        private readonly client: Redis & Cluster & { readonly isCluster: boolean },
        patience: number,
    ) {
        this.isCluster = client.isCluster;
        this.attempt = new Attempt(
            client,
            this.isCluster ? ['error', 'node error', 'end'] : ['error', 'end'],
            patience,
        );
        const { host, port, path, keyPrefix } = client.options;
        this.name = this.isCluster ? 'the cluster' : (path ?? `${host ?? 'localhost'}:${port ?? 6379}`);
        this.prefix = String(keyPrefix ?? '');
        this.maker = Object.create(client, {
            sendCommand: { value: (command: Sent) => command },
            options: { value: { ...client.options, enableAutoPipelining: false } },
        });
    }

    get closed(): string | undefined {
        return this.client.status === 'end' ? `${this.name}: the client is closed` : undefined;
    }

    watch(changed: () => void): () => void {
        return listen(this.client, ['end'], changed);
    }

    async send({ key, words }: Command): Promise<Answer> {
        const error = await this.ready();
        if (error !== undefined) return { error, sends: 0 };
        let sends = 0;
        try {
            const command = this.maker.call(...words) as Sent;
            // The library does not know which words of a module's command are keys.
            command.getKeys = () => [key];
            const { toWritable } = command;
            command.toWritable = (...args) => {
                sends += 1;
                return toWritable.apply(command, args);
            };
            return { reply: await this.client.sendCommand(command), sends };
        } catch (error) {
            return { error, sends };
        }
    }

    sendAll(commands: readonly Command[]): Promise<Answer>[] {
        if (this.isCluster || commands.length < 2) return commands.map((command) => this.send(command));
        const answers = this.pipelined(commands);
        return commands.map(async (_, place) => (await answers)[place]!);
    }

    private async pipelined(commands: readonly Command[]): Promise<Answer[]> {
        let error = await this.ready();
        if (error === undefined) {
            const pipeline = this.client.pipeline();
            for (const { words } of commands) pipeline.call(...words);
            try {
                const replies = (await pipeline.exec()) ?? [];
                return replies.map(([error, reply]) => (error ? { error, sends: 1 } : { reply, sends: 1 }));
            } catch (caught) {
                error = caught;
            }
        }
        return commands.map(() => ({ error, sends: 1 }));
    }

    /** Waits for a connection: undefined, or why there is none. */
    private async ready(): Promise<unknown> {
        const { client } = this;
        if (client.status === 'ready') return undefined;
        if (client.status === 'end') return new Error('Connection is closed.');
        if (client.status === 'wait') client.connect().catch(() => {});
        return this.attempt.outcome();
    }

    node(slot: number): string {
        return this.isCluster ? (this.client.slots[slot]?.[0] ?? '') : '';
    }

    async open(slot: number, heard: (message: string) => void, ended: () => void): Promise<Subscription> {
        const { client, isCluster } = this;
        const node = this.node(slot);
        const isOf = ({ options }: Redis) => `${options.host}:${options.port}` === node;
        const origin = isCluster ? client.nodes('all').find(isOf) : client;
        if (origin === undefined) throw new Error('no node serves the slot');
        const own = origin.duplicate({
            keyPrefix: '',
            lazyConnect: true,
            readOnly: false,
            retryStrategy: null,
            autoResubscribe: false,
            autoResendUnfulfilledCommands: false,
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
            leave: async (channels, commands) => {
                await (isCluster ? own.sunsubscribe(...channels) : own.unsubscribe(...channels));
                await Promise.allSettled(commands.map(({ words }) => own.call(...words)));
            },
            keep: (isWanted) => (isWanted ? own.stream?.ref?.() : own.stream?.unref?.()),
            close,
        };
    }
}
