/** A server of locks in memory, for tests without a server: the lock clients above it are the real ones. */
import type { Answer, Command, Request, Subscription, Transport } from './transport.js';

/** What is asked for, waits, or is held. */
interface Ask {
    readonly verb: string;
    readonly keys: readonly string[];
    readonly owner: string;
    readonly mode: string;
    readonly words: readonly string[];
    readonly token: number;
    readonly count: number;
    readonly lease: number;
    note: string | null;
    since: number;
    until: number;
}

/**
 * Give it to `LockClient` in place of a client. It knows what lock clients send: exclusive and read-write locks,
 * several keys, semaphores, waits in order, and what runs under a lock. It knows no deadlocks and no types of keys, and
 * has no faults; replicas have all.
 */
export class TestServer implements Transport {
    // The transport of lock clients, which only they call.
    readonly name = 'the server in memory';
    readonly isCluster = false;
    readonly prefix = '';
    readonly closed = undefined;
    private offset = 0;
    private lastToken = 0;
    /** Of one key each. */
    private held: Ask[] = [];
    private waiting: Ask[] = [];
    private readonly permits = new Map<string, number>();
    /** Owners that have given up. */
    private readonly finals = new Set<string>();
    private readonly heard = new Map<string, (message: string) => void>();
    private readonly clients: ((owner: string) => Promise<void>)[] = [];

    /** `execute` answers what `hold.execute()` runs under a lock, as the client library would. */
    constructor(private readonly execute: (command: string, ...args: (string | Buffer)[]) => unknown = () => null) {}

    /**
     * Moves the clock of the server, as if the lock clients stood still for so many milliseconds. Who has lost a lock
     * by that knows it when this resolves.
     */
    advance(ms: number): Promise<void> {
        this.offset += ms;
        return this.settle();
    }

    /** Ends what is held of this name, as `LOCK.BREAK` does. Who has lost it knows it when this resolves. */
    lose(name: string): Promise<void> {
        for (const hold of this.held) if (hold.keys[0] === name) hold.until = 0;
        return this.settle();
    }

    /** How many holds there are, one for each key, and how many acquisitions wait. */
    counts(): { held: number; waiting: number } {
        void this.settle();
        return { held: this.held.length, waiting: this.waiting.length };
    }

    attach(renew: (owner: string) => Promise<void>): void {
        this.clients.push(renew);
    }

    watch(): () => void {
        return () => {};
    }

    connecting(): undefined {}

    node(): string {
        return '';
    }

    send(requests: readonly Request[]): void {
        for (const request of requests) {
            const answer = this.run(request);
            setImmediate(() => request.answer(answer));
        }
    }

    async open(_slot: number, heard: (message: string) => void): Promise<Subscription> {
        const own: string[] = [];
        return {
            subscribe: async (channel) => {
                own.push(channel);
                this.heard.set(channel, heard);
            },
            ping: async () => 'PONG',
            leave: async () => {},
            call: async (commands) => commands.map((command) => this.run(command)),
            keep: () => {},
            close: () => own.forEach((channel) => this.heard.delete(channel)),
        };
    }

    private now(): number {
        return Date.now() + this.offset;
    }

    /** The end of this time; then what has ended is settled. */
    private in(ms: number): number {
        if (ms < 2 ** 31) setTimeout(() => void this.settle(), ms).unref();
        return this.now() + ms;
    }

    /** Ends what is over, and grants what is free; resolves when the clients have learned of it. */
    private async settle(): Promise<void> {
        const lost = this.held.filter(({ until }) => until <= this.now());
        this.held = this.held.filter((hold) => !lost.includes(hold));
        for (const wait of [...this.waiting]) {
            const isOver = wait.until <= this.now();
            if (!isOver && !this.isFree(wait)) continue;
            this.waiting = this.waiting.filter((one) => one !== wait);
            if (!isOver) this.grant(wait);
            const [, channel, tag] = after(wait.words, 'NOTIFY');
            setImmediate(() => this.heard.get(channel!)?.(`${isOver ? 'timeout' : 'granted 1'} ${tag}`));
        }
        await Promise.all(lost.flatMap(({ owner }) => this.clients.map((renew) => renew(owner))));
    }

    private run({ words }: Command): Answer {
        void this.settle();
        try {
            return { reply: this.answer(words), sends: 1 };
        } catch (error) {
            return { error, sends: 1 };
        } finally {
            void this.settle();
        }
    }

    private answer(all: readonly (string | Buffer)[]): unknown {
        const ask = parse(all.map(String));
        const [key] = ask.keys as [string];
        const own = this.of(key, ask);
        switch (ask.verb) {
            case 'LOCK.ACQUIRE':
            case 'LOCK.MACQUIRE':
            case 'SEM.ACQUIRE':
                return this.acquire(ask);
            case 'LOCK.RELEASE':
            case 'SEM.RELEASE':
                return this.release(ask, own);
            case 'LOCK.RENEW':
            case 'SEM.RENEW':
                if (own === undefined) return 0;
                own.until = this.in(ask.lease);
                own.note = ask.note ?? own.note;
                return 1;
            case 'LOCK.IF':
                if (!this.of(key).some(({ token }) => String(token) === String(all[2])))
                    throw new Error('FENCED the lock is not held under this token');
                return this.execute(String(all[3]), ...all.slice(4));
            case 'SEM.SET':
                return this.permits.set(key, Number(all[2])) && 1;
            case 'LOCK.INFO':
            case 'SEM.INFO':
                return this.info(key);
            case 'EXISTS':
                return this.permits.has(key) ? 1 : 0;
            case 'WAIT':
                return Number(key);
        }
        throw new Error(`ERR unknown command '${ask.verb}'`);
    }

    /** What is held of a key, and what of it the owner of a request has. */
    private of(key: string): Ask[];
    private of(key: string, ask: Ask): Ask | undefined;
    private of(key: string, ask?: Ask): Ask[] | Ask | undefined {
        const all = this.held.filter(({ keys }) => keys[0] === key);
        if (ask === undefined) return all;
        const isFinal = ask.words.includes('FINAL');
        return all.find(
            ({ owner, token, mode }) =>
                owner === ask.owner && (!ask.token || token === ask.token) && (isFinal || mode === ask.mode),
        );
    }

    /** Whether it can be granted, behind those that wait before it. */
    private isFree(ask: Ask): boolean {
        const place = this.waiting.findIndex((wait) => isSame(wait, ask));
        const before = place < 0 ? this.waiting : this.waiting.slice(0, place);
        return ask.keys.every((key) => this.hasRoom(key, ask, before));
    }

    private hasRoom(key: string, { verb, mode, count, owner }: Ask, before: readonly Ask[]): boolean {
        const all = this.of(key);
        const isPermit = verb.startsWith('SEM');
        const isOwn = !isPermit && all.some((hold) => hold.owner === owner);
        if (!isOwn && before.some(({ keys }) => keys.includes(key))) return false;
        if (isPermit) return all.reduce((sum, hold) => sum + hold.count, count) <= (this.permits.get(key) ?? 0);
        return all.every((hold) => hold.owner === owner || (mode === 'READ' && hold.mode === 'READ'));
    }

    private grant(ask: Ask): void {
        for (const key of ask.keys) {
            if (this.of(key, ask)) continue;
            // Who writes reads under the same token.
            const own = this.of(key).find(({ owner, mode }) => owner === ask.owner && mode === 'WRITE');
            const token = own?.token ?? (this.lastToken += 1);
            this.held.push({ ...ask, keys: [key], token, since: this.now(), until: this.in(ask.lease) });
        }
    }

    private acquire(ask: Ask): unknown {
        const [key] = ask.keys as [string];
        const [, limit] = after(ask.words, 'LIMIT');
        if (limit !== undefined && !this.permits.has(key)) this.permits.set(key, Number(limit));
        if (!ask.keys.every((one) => this.of(one, ask))) {
            if (this.finals.has(ask.owner) || !this.isFree(ask)) return this.wait(ask);
            this.waiting = this.waiting.filter((wait) => !isSame(wait, ask));
            this.grant(ask);
        }
        const tokens = ask.keys.map((one) => this.of(one, ask)!.token);
        return ask.verb === 'LOCK.MACQUIRE' ? tokens : tokens[0];
    }

    private wait(ask: Ask): unknown {
        const [, channel] = after(ask.words, 'NOTIFY');
        if (channel === undefined || this.finals.has(ask.owner)) return null;
        if (!this.heard.has(channel)) throw new Error('NOSUBSCRIBER the channel has no subscriber');
        const [, block] = after(ask.words, 'BLOCK');
        ask.until = this.in(Number(block) || Infinity);
        const place = this.waiting.findIndex((wait) => isSame(wait, ask));
        const [, most = Infinity] = after(ask.words, 'QUEUE');
        if (place >= 0) this.waiting[place] = { ...ask, since: this.waiting[place]!.since };
        else if (this.waiting.filter((wait) => meets(wait, ask)).length >= Number(most))
            throw new Error('QUEUEFULL as many requests as QUEUE allows wait for the key already');
        else this.waiting.push({ ...ask, since: this.now() });
        return 'QUEUED';
    }

    private release(ask: Ask, own: Ask | undefined): unknown {
        const before = this.waiting.length;
        if (!ask.token) this.waiting = this.waiting.filter((wait) => !isSame(wait, ask));
        if (ask.words.includes('FINAL')) this.finals.add(ask.owner);
        this.held = this.held.filter((hold) => hold !== own);
        return own !== undefined || this.waiting.length < before ? 1 : null;
    }

    private info(key: string): unknown {
        const now = this.now();
        const holders = this.of(key).map(({ owner, note, token, since, until }) => {
            return { owner, note, token, holds: 1, pttl: until - now, 'held-ms': now - since };
        });
        const [first, ...waits] = this.waiting.filter(({ keys }) => keys.includes(key));
        const held = this.of(key).reduce((sum, { count }) => sum + count, 0);
        const permits = this.permits.get(key) ?? 0;
        const asked = this.of(key)[0] ?? first;
        return {
            mode: asked && (asked.mode.toLowerCase() || 'exclusive'),
            ...{ holders, held, permits, free: permits - held, 'next-end-ms': holders[0]?.pttl },
            ...{ waiters: first ? waits.length + 1 : 0, 'longest-wait-ms': first ? now - first.since : 0 },
        };
    }
}

function meets(one: Ask, other: Ask): boolean {
    return one.keys.some((key) => other.keys.includes(key));
}

/** Whether the newer one of them takes the other's place. */
function isSame(one: Ask, other: Ask): boolean {
    return one.owner === other.owner && meets(one, other);
}

/** A word of an option, and those that follow. */
function after(words: readonly string[], option: string): readonly string[] {
    const at = words.indexOf(option);
    return at < 0 ? [] : words.slice(at);
}

/** Reads a command as lock clients write it. */
function parse([name = '', ...words]: string[]): Ask {
    const verb = name.toUpperCase();
    const keys = verb === 'LOCK.MACQUIRE' ? words.splice(0, 1 + Number(words[0])).slice(1) : words.splice(0, 1);
    const [owner = '', ...options] = words;
    const number = (option: string, absent: number) => Number(after(options, option)[1] ?? absent);
    const mode = ['READ', 'WRITE'].find((word) => options.includes(word)) ?? '';
    return {
        ...{ verb, keys, owner, mode, words: options, note: after(options, 'NOTE')[1] ?? null },
        ...{ token: number('TOKEN', 0), count: number('COUNT', 1), lease: number('PX', 0), since: 0, until: 0 },
    };
}
