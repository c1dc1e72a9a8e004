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

/** A connection of its own that has subscribed to channels. It is never opened again by itself. */
export interface Subscription {
    subscribe(channel: string): Promise<unknown>;
    /** Any reply, also an error of the server, shows that the connection lives. */
    ping(): Promise<unknown>;
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
    /** Never rejects. While the client has no connection it waits for the outcome of the present attempt. */
    send(command: Command): Promise<Answer>;
    /** Sends commands together. */
    sendAll(commands: readonly Command[]): Promise<Answer[]>;
    /** The name of the node that serves a slot; empty outside a cluster. */
    node(slot: number): string;
    /** Opens a connection to the node of a slot. `ended` is called at most once, and not after `close()`. */
    open(slot: number, heard: (message: string) => void, ended: () => void): Promise<Subscription>;
}

/** Waits for the first of these events of a client: undefined for `ready`, else the error. */
export function whenReady(
    client: {
        on(event: string, listener: (cause?: unknown) => void): unknown;
        off(event: string, listener: (cause?: unknown) => void): unknown;
    },
    failures: readonly string[],
    patience: number,
): Promise<unknown> {
    return new Promise((resolve) => {
        const done = (error?: unknown) => {
            clearTimeout(timer);
            client.off('ready', ready);
            failures.forEach((event) => client.off(event, failed));
            resolve(error);
        };
        const ready = () => done();
        const failed = (cause?: unknown) => done(cause ?? new Error('the connection is closed'));
        const timer = setTimeout(() => done(new Error('no connection in time')), patience);
        client.on('ready', ready);
        failures.forEach((event) => client.on(event, failed));
    });
}
