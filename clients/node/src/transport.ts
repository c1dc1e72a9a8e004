import type { LockClient } from './client.js';

/** The words of a command, with its name. */
export type Words = readonly (string | Buffer)[];

/** A command and the key that says which node of a cluster serves it. */
export interface Command {
    readonly key: string;
    readonly words: Words;
}

/** What became of a command. `reply` counts if there is no `error`. */
export interface Answer {
    readonly reply?: unknown;
    /** Of the server, or of the connection, as the client library throws it. */
    readonly error?: unknown;
    /** How often it was sent: some libraries send a command again whose reply is missing. */
    readonly sends: number;
}

/** A command that is to be sent. */
export interface Request extends Command {
    /** Takes its answer. */
    answer(answer: Answer): void;
}

/** A connection of its own that has subscribed to channels. It is never opened again by itself. */
export interface Subscription {
    subscribe(channel: string): Promise<unknown>;
    /** Any reply, also an error of the server, shows that the connection lives. */
    ping(): Promise<unknown>;
    /** Ends the subscriptions to these channels. */
    leave(channels: readonly string[]): Promise<unknown>;
    /** Sends commands together, over this connection. */
    call(commands: readonly Command[]): Promise<Answer[]>;
    /** Whether it keeps the process alive. */
    keep(isWanted: boolean): void;
    close(): void;
}

/** A client of the program, through the public interface of its library. */
export interface Transport {
    /** `host:port`, for messages. */
    readonly name: string;
    readonly isCluster: boolean;
    /** What the client puts before each key. */
    readonly prefix: string;
    /** Says that the program has closed the client, which connects no more by itself; else undefined. */
    readonly closed: string | undefined;
    /** Calls this function when the client may have been closed, until the returned one is called. */
    watch(changed: () => void): () => void;
    /** Undefined if it is connected; else the outcome of the present attempt: undefined, or why there is none. */
    connecting(): Promise<unknown> | undefined;
    /** Sends commands together. Each is answered by itself: in a cluster one node may hang. */
    send(requests: readonly Request[]): void;
    /** The name of the node that serves a slot; empty outside a cluster. */
    node(slot: number): string;
    /** Of the server in memory: its clients learn by it when time passes, and when a hold has ended. */
    attach?(client: LockClient): void;
    /** Opens a connection to the node of a slot. `ended` is called at most once, and not after `close()`. */
    open(slot: number, heard: (message: string) => void, ended: () => void): Promise<Subscription>;
}

/** The outcomes of these commands that were sent once. */
export function answers(replies: readonly Promise<unknown>[]): Promise<Answer[]> {
    return Promise.all(
        replies.map((reply) =>
            reply.then(
                (reply): Answer => ({ reply, sends: 1 }),
                (error): Answer => ({ error, sends: 1 }),
            ),
        ),
    );
}

export interface Emitter {
    on(event: string, listener: (cause?: unknown) => void): unknown;
    off(event: string, listener: (cause?: unknown) => void): unknown;
}

/** Listens to each of these events, until the returned function is called. */
export function listen(client: Emitter, events: readonly string[], listener: () => void): () => void {
    const heard = () => listener();
    for (const event of events) client.on(event, heard);
    return () => {
        for (const event of events) client.off(event, heard);
    };
}

/** The present attempt of a client to connect, which all requests of that time wait for. */
export class Attempt {
    private present: Promise<unknown> | undefined;

    constructor(
        private readonly client: Emitter,
        private readonly failures: readonly string[],
        private readonly patience: number,
    ) {}

    /** Its outcome: undefined when the client is ready, else the error. */
    outcome(): Promise<unknown> {
        this.present ??= new Promise((resolve) => {
            const { client, failures } = this;
            const done = (error?: unknown) => {
                this.present = undefined;
                clearTimeout(timer);
                client.off('ready', ready);
                for (const event of failures) client.off(event, failed);
                resolve(error);
            };
            const ready = () => done();
            const failed = (cause?: unknown) => done(cause ?? new Error('the connection is closed'));
            // Before the response timeout, whose error would not say that nothing was sent.
            const timer = setTimeout(() => done(new Error('no connection in time')), this.patience * 0.9);
            client.on('ready', ready);
            for (const event of failures) client.on(event, failed);
        });
        return this.present;
    }
}
