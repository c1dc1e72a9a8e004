/**
 * A server of locks in memory, for tests without a server: the lock clients above it are the real ones.
 *
 * What is held and what waits are two lists in the order of arrival. After each request, and when a time is over,
 * `settle()` ends what is over, grants what is free, and tells the lock clients.
 */
import type { LockClient } from './client.js';
import { answers, type Command, type Request, type Subscription, type Transport } from './transport.js';

/** The commands with options: the kind of lock without READ or WRITE (empty: any), and what they know. */
const OPTIONS: Record<string, [string, string]> = {
    'LOCK.ACQUIRE': ['exclusive', 'READ WRITE PX BLOCK NOTIFY QUEUE ONCE SEQ NOTE'],
    'LOCK.MACQUIRE': ['exclusive', 'READ WRITE PX BLOCK NOTIFY QUEUE ONCE SEQ'],
    'SEM.ACQUIRE': ['semaphore', 'COUNT LIMIT PX BLOCK NOTIFY QUEUE SEQ'],
    'LOCK.RENEW': ['', 'READ WRITE PX TOKEN NOTE'],
    'SEM.RENEW': ['semaphore', 'PX'],
    'LOCK.RELEASE': ['', 'READ WRITE ALL TOKEN FINAL'],
    'SEM.RELEASE': ['semaphore', 'FINAL'],
};
const SYNTAX = 'ERR syntax error';

/** What is asked for, waits, or is held: of a hold it has one key, and its tokens, the present one first. */
type Ask = ReturnType<typeof parse>;

/**
 * Give it to `LockClient` in place of a client: each lock client stands for a process. It does what the module does for
 * them, and what `hold.execute()` runs: GET, SET, INCR and DEL. It finds no deadlocks, has no users and no limits, and
 * never fails.
 */
export class TestServer implements Transport {
    /** How many replicas have each grant at once. */
    replicas = 0;
    // The transport of lock clients, which only they call.
    readonly name = 'the server in memory';
    readonly isCluster = false;
    readonly prefix = '';
    readonly closed = undefined;
    readonly watch = () => () => {};
    readonly connecting = () => undefined;
    readonly node = () => '';
    readonly attach = (client: LockClient) => void this.clients.push(client);
    private offset = 0;
    private lastToken = 0;
    private held: Ask[] = [];
    private waiting: Ask[] = [];
    /** What the clients believe to be held. */
    private known: Ask[] = [];
    /** Strings, and the numbers of permits. */
    private readonly values = new Map<string, string>();
    /** By key and owner, the last acquisition that was given up. */
    private readonly finals = new Map<string, number>();
    private readonly heard = new Map<string, (message: string) => void>();
    private readonly clients: LockClient[] = [];
    private timer: NodeJS.Timeout | undefined;

    /**
     * So much time passes, for the server and its lock clients. What they renew stays held, as if it had been renewed
     * meanwhile; other holds end with their leases, and waits at their bounds. The clients know it when this resolves.
     */
    async advance(ms: number): Promise<void> {
        // What was answered before reaches the clients before.
        await new Promise(setImmediate);
        this.offset += ms;
        const kept = this.clients.flatMap((client) => client.pass(ms)).flatMap((one) => this.of(one.key, one));
        for (const hold of new Set(kept)) hold.until += ms;
        await this.settle();
    }

    /** Ends what is held of this name, as `LOCK.BREAK` does. Who has lost it knows it when this resolves. */
    async lose(name: string): Promise<void> {
        this.end(this.of(name));
        await this.settle();
    }

    send(requests: readonly Request[]): void {
        for (const request of requests)
            void answers([this.run(request)]).then(([answer]) => setImmediate(() => request.answer(answer!)));
    }

    async open(_slot: number, heard: (message: string) => void): Promise<Subscription> {
        return {
            subscribe: async (channel) => this.heard.set(channel, heard),
            ping: async () => 'PONG',
            leave: async () => {},
            call: (commands) => answers(commands.map((command) => this.run(command))),
            keep: () => {},
            close: () => this.heard.forEach((own, channel) => own === heard && this.heard.delete(channel)),
        };
    }

    // Commands

    /** Those without options: the kind of their key, how many words they have, and what they do. */
    private readonly commands: Record<string, [string, number, number, (...words: string[]) => unknown]> = {
        'LOCK.INFO': ['', 1, 1, (key) => this.info(key)],
        'LOCK.IF': ['', 4, Infinity, (key, token, ...command) => this.fenced(key, Number(token), command)],
        'SEM.INFO': ['semaphore', 1, 1, (key) => this.info(key)],
        'SEM.SET': ['semaphore', 2, 2, (key, permits) => this.put(key, Number(permits))],
        WAIT: ['any', 2, 2, () => this.replicas],
        EXISTS: ['any', 1, 1, (key) => Number(this.exists(key))],
        GET: ['string', 1, 1, (key) => this.values.get(key) ?? null],
        SET: ['any', 2, 3, (key, value, condition) => this.set(key, value, condition)],
        INCR: ['string', 1, 1, (key) => this.put(key, Number(this.values.get(key) ?? 0) + 1)],
        DEL: ['any', 1, Infinity, (...keys) => keys.filter((key) => this.remove(key)).length],
    };

    private async run({ words }: Command): Promise<unknown> {
        void this.settle();
        const reply = this.answer(words.map(String));
        void this.settle();
        return reply;
    }

    private answer([name = '', ...words]: string[]): unknown {
        const verb = name.toUpperCase();
        if (verb in OPTIONS) {
            const ask = parse(verb, words);
            for (const key of ask.keys) this.check(key, ask.kind);
            return verb.endsWith('ACQUIRE') ? this.acquire(ask) : this.change(ask);
        }
        const [kind = '', least = 0, most = 0, command] = this.commands[verb] ?? [];
        if (!command) throw new Error(`ERR unknown command '${name}'`);
        if (words.length < least || words.length > most) throw new Error(SYNTAX);
        if (kind !== 'any') this.check(words[0]!, kind);
        return command(...words);
    }

    private fenced(key: string, token: number, command: string[]): unknown {
        if (!this.of(key).some(({ tokens }) => tokens[0] === token)) throw new Error('FENCED by another token');
        if (command[0]!.includes('.')) throw new Error('ERR LOCK.IF runs commands of the server that have a key');
        return this.answer(command);
    }

    private put(key: string, value: number): number {
        if (!Number.isSafeInteger(value)) throw new Error('ERR value is not an integer or out of range');
        this.values.set(key, String(value));
        return value;
    }

    private set(key: string, value: string, condition = ''): unknown {
        if (!/^(NX|XX)?$/i.test(condition)) throw new Error(SYNTAX);
        if (condition && this.exists(key) !== /XX/i.test(condition)) return null;
        this.remove(key);
        this.values.set(key, value);
        for (const wait of at(key, this.waiting)) this.tell(wait, 'failed WRONGTYPE');
        return 'OK';
    }

    private acquire(ask: Ask): unknown {
        const { verb, keys, owner, options, number } = ask;
        if (number('COUNT', 1) > number('LIMIT', Infinity)) throw new Error('ERR COUNT is above LIMIT');
        if (options.has('NOTIFY') && !this.heard.has(options.get('NOTIFY')![0]!)) throw new Error('NOSUBSCRIBER');
        if (keys.some((key) => number('SEQ', Infinity) <= (this.finals.get(`${key} ${owner}`) ?? 0))) return null;
        if (options.has('LIMIT') && !this.values.has(keys[0]!)) this.put(keys[0]!, number('LIMIT', 0));
        if (!this.isFree(ask)) return this.wait(ask);
        this.waiting.splice(this.place(ask), 1);
        const tokens = this.grant(ask);
        return verb === 'LOCK.MACQUIRE' ? tokens : tokens[0];
    }

    private wait(ask: Ask): unknown {
        if (!ask.options.has('BLOCK')) return null;
        const place = this.place(ask);
        const isFull = (key: string) => at(key, this.waiting).length >= ask.number('QUEUE', Infinity);
        const old = this.waiting[place];
        if (!old && ask.keys.some(isFull)) throw new Error('QUEUEFULL as many requests as QUEUE allows wait');
        ask.since = old?.since ?? this.now();
        ask.until = this.now() + (ask.number('BLOCK', 0) || Infinity);
        this.waiting.splice(place, 1, ask);
        return 'QUEUED';
    }

    /** A renewal, or a release. */
    private change(ask: Ask): unknown {
        const { verb, keys, owner, options, number, tokens, note } = ask;
        const own = this.of(keys[0]!, ask).filter((hold) => tokens.every((token) => hold.tokens.includes(token)));
        const isFinal = options.has('FINAL');
        if (own.length > 1 && !isFinal) throw new Error('ERR the owner holds READ and WRITE, say which');
        if (verb.endsWith('RENEW')) {
            for (const hold of own) [hold.until, hold.note] = [this.now() + number('PX', 0), note ?? hold.note];
            return own.length;
        }
        if (isFinal) this.finals.set(`${keys[0]} ${owner}`, number('FINAL', 0));
        const waits = at(keys[0]!, this.waiting).filter((wait) => wait.owner === owner && tokens.length === 0);
        if (isFinal || own.length === 0) this.waiting = this.waiting.filter((wait) => !waits.includes(wait));
        this.end(own);
        return own.length > 0 || (isFinal && waits.length > 0) ? 1 : null;
    }

    private info(key: string): unknown {
        const now = this.now();
        const [all, waits, permits] = [this.of(key), at(key, this.waiting), this.values.get(key)];
        // Who reads and writes, writes.
        const writes = all.filter(({ kind }) => kind === 'write');
        const [first] = [...writes, ...all, ...waits];
        if (!first && permits === undefined) return null;
        const holders = (writes[0] ? writes : all).map((hold) => {
            return { ...hold, token: hold.tokens[0], holds: 1, pttl: hold.until - now, 'held-ms': now - hold.since };
        });
        return {
            ...{ mode: first?.kind, holders, permits, held: taken(all), free: Number(permits) - taken(all) },
            'next-end-ms': all[0] && Math.min(...all.map(({ until }) => until)) - now,
            ...{ waiters: waits.length, 'longest-wait-ms': waits[0] ? now - waits[0].since : 0 },
        };
    }

    // What there is

    private readonly now = () => Math.floor(performance.now() + this.offset);
    private readonly exists = (key: string) => this.values.has(key) || this.of(key).length > 0;
    private readonly end = (all: Ask[]) => void (this.held = this.held.filter((hold) => !all.includes(hold)));

    /** What is held of a key: all, or what this owner has. */
    private of(key: string, by?: Pick<Ask, 'owner' | 'kind'>): Ask[] {
        const all = this.held.filter(({ keys }) => keys[0] === key);
        if (!by) return all;
        return all.filter(({ owner, kind }) => owner === by.owner && ['', 'exclusive', kind].includes(by.kind));
    }

    /** Refuses a key that holds something else than this. */
    private check(key: string, kind: string): void {
        const [value, [hold]] = [this.values.get(key), this.of(key)];
        const isLock = value === undefined && hold !== undefined;
        if (/semaphore|string/.test(kind) ? isLock : value !== undefined)
            throw new Error('WRONGTYPE Operation against a key holding the wrong kind of value');
        if (kind === 'semaphore' && Number.isNaN(Number(value ?? 0))) throw new Error('LOCKTYPE the key holds a text');
        if (isLock && kind && (kind === 'exclusive') !== (hold.kind === 'exclusive'))
            throw new Error('LOCKTYPE the key is locked in another way');
    }

    /** The place of this wait, or of one that begins now. */
    private place({ owner, keys }: Ask): number {
        const place = this.waiting.findIndex((one) => one.owner === owner && String(one.keys) === String(keys));
        return place < 0 ? this.waiting.length : place;
    }

    /** Whether it can be granted, behind those that wait before it. What its owner holds already is granted again. */
    private isFree(ask: Ask): boolean {
        return ask.keys.every((key) => {
            const all = this.of(key);
            const others = all.filter(({ owner }) => owner !== ask.owner);
            if (this.of(key, ask).length > 0) return true;
            // Who reads may write before those that wait, and the reverse.
            if (others.length === all.length && at(key, this.waiting.slice(0, this.place(ask)))[0]) return false;
            if (ask.kind === 'semaphore') return taken([...all, ask]) <= Number(this.values.get(key) ?? 0);
            return others.every(({ kind }) => kind === 'read' && ask.kind === 'read');
        });
    }

    private grant(ask: Ask): number[] {
        return ask.keys.map((key) => {
            const [beside] = this.of(key);
            let [own] = this.of(key, ask);
            if (!own) {
                const tokens = (ask.kind === 'read' && beside?.tokens) || [(this.lastToken += 1)];
                // What a writer reads has its token, too.
                if (ask.kind === 'write') beside?.tokens.unshift(tokens[0]!);
                this.held.push((own = { ...ask, keys: [key], tokens, since: this.now(), until: 0 }));
            }
            own.until = Math.max(own.until, this.now() + ask.number('PX', 0));
            own.note = ask.note ?? own.note;
            return own.tokens[0]!;
        });
    }

    /** Removes a key, and what is held of it: whether it was there. */
    private remove(key: string): boolean {
        const all = this.of(key);
        this.end(all);
        return this.values.delete(key) || all.length > 0;
    }

    /** Ends what is over, in the order of time, and grants what is free; resolves when the clients know it. */
    private async settle(): Promise<void> {
        let left = 0;
        while (left <= 0) {
            this.waiting.forEach((wait) => this.isFree(wait) && this.tell(wait, `granted ${this.grant(wait).join()}`));
            const [next] = [...this.held, ...this.waiting].sort((one, other) => one.until - other.until);
            left = (next?.until ?? Infinity) - this.now();
            if (next && left <= 0) this.held.includes(next) ? this.end([next]) : this.tell(next, 'timeout');
        }
        clearTimeout(this.timer);
        this.timer = setTimeout(() => void this.settle(), Math.min(left, 2 ** 31 - 1)).unref();
        const ended = this.known.filter((hold) => !this.held.includes(hold));
        this.known = this.held;
        await Promise.all(ended.flatMap(({ keys, owner }) => this.clients.map((one) => one.recheck(keys[0]!, owner))));
    }

    /** Ends a wait. */
    private tell(wait: Ask, outcome: string): void {
        const [channel, tag] = wait.options.get('NOTIFY')!;
        this.waiting = this.waiting.filter((one) => one !== wait);
        setImmediate(() => this.heard.get(channel!)?.(`${outcome} ${tag}`));
    }
}

/** The waits for a key. */
const at = (key: string, waits: readonly Ask[]) => waits.filter(({ keys }) => keys.includes(key));
/** How many permits they have. */
const taken = (holds: readonly Ask[]) => holds.reduce((sum, { number }) => sum + number('COUNT', 1), 0);

/** A command with options, as lock clients write it. */
function parse(verb: string, words: string[]) {
    const keys = verb === 'LOCK.MACQUIRE' ? words.splice(0, 1 + Number(words[0])).slice(1) : words.splice(0, 1);
    const [owner = ''] = words.splice(0, 1);
    const [any, known] = OPTIONS[verb]!;
    const options = new Map<string, string[]>();
    while (words.length > 0) {
        const option = words.shift()!.toUpperCase();
        const length = option === 'NOTIFY' ? 2 : /^(READ|WRITE|ONCE|ALL)$/.test(option) ? 0 : 1;
        if (!known.split(' ').includes(option) || words.length < length) throw new Error(SYNTAX);
        options.set(option, words.splice(0, length));
    }
    if (options.has('BLOCK') !== options.has('NOTIFY')) throw new Error(SYNTAX);
    /** The number behind an option. */
    const number = (option: string, absent: number) => Number(options.get(option)?.[0] ?? absent);
    const mode = ['READ', 'WRITE'].find((word) => options.has(word))?.toLowerCase();
    const kind = mode ?? (options.has('NOTE') ? 'exclusive' : any);
    const tokens = (options.get('TOKEN') ?? []).map(Number);
    return { verb, keys, owner, kind, options, number, tokens, note: options.get('NOTE')?.[0], since: 0, until: 0 };
}
