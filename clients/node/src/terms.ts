import { ConfigError } from './errors.js';
import type { Command } from './transport.js';

/** `read`: with other readers; `write`: alone, on a lock that is used with these two modes only. */
export type Mode = 'exclusive' | 'read' | 'write';

/** How a lock is held. All times are in milliseconds. */
export interface HoldOptions {
    /** How long the server keeps a hold that is not renewed: 30,000. */
    readonly lease?: number;
    /** Whether the hold is renewed until it is released: true. */
    readonly renew?: boolean;
    /** How long before the end of the lease a loss is reported: a sixth of it; at most a half. */
    readonly margin?: number;
    /** The longest time of a hold in spite of renewals, for programs that hang. */
    readonly maxHold?: number;
    /** So many replicas (1 to 100) have to have a grant, or it is given up: `NotReplicatedError`. */
    readonly replicas?: number;
    /** How long they have: 100. */
    readonly replicasWithin?: number;
    /** An acquisition waits only where fewer than so many requests of others wait; else it is a `QueueFullError`. */
    readonly queue?: number;
}

/** How a lock is asked for, and held. */
export interface LockOptions extends HoldOptions {
    readonly mode?: Mode;
    /**
     * A name for the owner, used as it is, to release elsewhere. Without one each acquisition has a fresh owner. Two
     * requests of one owner are one to the server: both hold the lock. A request that had no answer may be granted
     * late, and lasts for its lease then.
     */
    readonly owner?: string;
    /** A text of at most 256 bytes beside the hold of an exclusive lock, for those who look (`LOCK.INFO`). */
    readonly note?: string;
}

export interface SemaphoreOptions extends HoldOptions {
    /** The number of permits with which an acquisition creates the semaphore if it is missing. */
    readonly permits?: number;
    /** How many permits an acquisition takes in one step, all or none: 1, at most 64. */
    readonly count?: number;
}

const MODES = ['exclusive', 'read', 'write'];
/** A hundred years. */
const LONGEST_LEASE = 100 * 365 * 86_400_000;
/** Longer times are no timers in Node. */
export const LONGEST_TIMER = 2 ** 31 - 1;
const MOST_KEYS = 1_024;
const MOST_PERMITS = 2 ** 31 - 1;

type Rule = readonly [holds: (value: any) => boolean, text: string];

// One millisecond of a lease is lost to rounding.
const LEASE: Rule = [
    (ms) => typeof ms === 'number' && ms >= 2 && ms <= LONGEST_LEASE,
    '2 milliseconds to a hundred years',
];
const SPAN: Rule = [(ms) => typeof ms === 'number' && ms >= 0, 'a number of milliseconds, and not negative'];

/** What each option and argument can be. No message quotes the value: an owner is a credential. */
const RULES = {
    lease: LEASE,
    maxHold: LEASE,
    renew: [(value) => typeof value === 'boolean', 'true or false'],
    margin: SPAN,
    mode: [(mode) => MODES.includes(mode), 'exclusive, read or write'],
    owner: [
        (owner) => isText(owner, 1) && !owner.startsWith('#'),
        "a string of 1 to 256 bytes, and does not begin with '#'",
    ],
    note: [(note) => isText(note, 0), 'a string of at most 256 bytes'],
    permits: [
        (count) => Number.isInteger(count) && count >= 1 && count <= MOST_PERMITS,
        `a whole number of at most ${MOST_PERMITS}, and of at least 1 to create a semaphore`,
    ],
    token: [(token) => Number.isSafeInteger(token) && token >= 0, 'a whole number'],
    rest: [(ms) => typeof ms === 'number' && ms > 0 && ms <= LONGEST_LEASE, 'a number of milliseconds above 0'],
    count: [(count) => Number.isInteger(count) && count >= 1 && count <= 64, 'a whole number from 1 to 64'],
    replicas: [(count) => Number.isInteger(count) && count >= 1 && count <= 100, 'a whole number from 1 to 100'],
    replicasWithin: [(ms) => typeof ms === 'number' && ms >= 1 && ms <= LONGEST_TIMER, 'a number of milliseconds'],
    queue: [(count) => Number.isInteger(count) && count >= 0 && count <= 1_000_000, 'a whole number up to 1000000'],
    wait: SPAN,
    interval: SPAN,
    signal: [(signal) => signal instanceof AbortSignal, 'an AbortSignal'],
    responseTimeout: [(ms) => typeof ms === 'number' && ms > 0 && ms <= LONGEST_TIMER, 'a number of milliseconds'],
    observer: [(value) => typeof value === 'object' && value !== null, 'an object with functions'],
    onWarning: [(call) => typeof call === 'function', 'a function'],
} satisfies Record<string, Rule>;

type Name = keyof typeof RULES;

function isText(text: unknown, least: number): boolean {
    const bytes = typeof text === 'string' ? Buffer.byteLength(text) : -1;
    return bytes >= least && bytes <= 256;
}

export function check(name: Name, value: unknown): void {
    const [holds, text]: Rule = RULES[name];
    if (!holds(value)) throw new ConfigError(`${name} is ${text}`);
}

/** A misspelt option would be ignored, and its default count. */
export function checkOptions(options: object, names: readonly Name[]): void {
    if (typeof options !== 'object' || options === null) throw new ConfigError('the options are an object');
    for (const [name, value] of Object.entries(options)) {
        if (!names.includes(name as Name))
            throw new ConfigError(`unknown option ${name}: there are ${names.join(', ')}`);
        if (value !== undefined) check(name as Name, value);
    }
}

export const HOLD_OPTIONS: readonly Name[] = [
    'lease',
    'renew',
    'margin',
    'maxHold',
    'replicas',
    'replicasWithin',
    'queue',
];

/** The checked terms of each acquisition of a lock, of several, or of a permit. */
export interface Terms extends HoldOptions {
    /** For messages and observers. */
    readonly name: string;
    readonly kind: Mode | 'semaphore';
    /** As they are stored: with the client's prefix. In a cluster all are in one slot. */
    readonly keys: readonly string[];
    readonly lease: number;
    readonly margin: number;
    readonly renew: boolean;
    readonly maxHold: number;
    readonly replicas: number;
    readonly replicasWithin: number;
    readonly isPermit: boolean;
    readonly permits?: number | undefined;
    readonly count: number;
    readonly owner?: string | undefined;
    readonly modeWords: readonly string[];
    /** The words of the request before its owner, those behind, and those of one that waits. */
    readonly verbAndKeys: readonly string[];
    readonly options: readonly string[];
    readonly waiting: readonly string[];
}

export function termsOf(keys: readonly string[], options: LockOptions & SemaphoreOptions, isPermit: boolean): Terms {
    if (keys.length < 1 || keys.length > MOST_KEYS) throw new ConfigError(`a lock has 1 to ${MOST_KEYS} keys`);
    if (new Set(keys).size < keys.length) throw new ConfigError('a key is named twice');
    checkOptions(
        options,
        isPermit ? [...HOLD_OPTIONS, 'permits', 'count'] : [...HOLD_OPTIONS, 'mode', 'owner', 'note'],
    );
    const { renew = true, mode = 'exclusive', maxHold: most = Infinity, permits, owner, note } = options;
    const maxHold = Math.floor(most);
    const lease = Math.min(Math.floor(options.lease ?? 30_000), maxHold);
    const { margin = lease / 6, replicas = 0, queue, count = 1 } = options;
    const replicasWithin = Math.ceil(options.replicasWithin ?? 100);
    if (margin > lease / 2) throw new ConfigError('margin is at most half of lease');
    if (mode !== 'exclusive' && (owner === 'mode' || owner?.endsWith(':write')))
        throw new ConfigError("the owner 'mode', or one that ends in ':write', cannot hold read or write");
    if (note !== undefined && (mode !== 'exclusive' || keys.length > 1))
        throw new ConfigError('a note is for an exclusive lock of one key');
    const modeWords = mode === 'exclusive' ? [] : [mode.toUpperCase()];
    const words = [...modeWords, 'PX', String(lease)];
    if (permits !== undefined) words.push('LIMIT', String(permits));
    if (count > 1) words.push('COUNT', String(count));
    if (!isPermit) words.push('ONCE');
    if (note !== undefined) words.push('NOTE', note);
    if (owner === undefined) words.push('SEQ', '1');
    const verb = isPermit ? 'sem.acquire' : keys.length > 1 ? 'lock.macquire' : 'lock.acquire';
    const verbAndKeys = [verb, ...(keys.length > 1 ? [String(keys.length)] : []), ...keys];
    return {
        ...{ name: keys.join(', '), kind: isPermit ? 'semaphore' : mode },
        ...{ keys, lease, margin, renew, maxHold, replicas, replicasWithin, isPermit, permits, count, owner },
        ...{ modeWords, verbAndKeys, options: words, waiting: queue === undefined ? [] : ['QUEUE', String(queue)] },
    };
}

/** A word of a command. Of other types the client libraries make errors or texts, each in its way. */
export function wordOf(word: string | number | bigint | Uint8Array): string | Buffer {
    if (typeof word === 'string') return word;
    if (typeof word === 'number' || typeof word === 'bigint') return String(word);
    if (word instanceof Uint8Array) return Buffer.from(word.buffer, word.byteOffset, word.byteLength);
    throw new ConfigError(
        `an argument of a command is a string, a number or bytes, not ${word === null ? null : typeof word}`,
    );
}

/**
 * The commands of one acquisition. Its owner is fresh, and its number 1 (`SEQ`), so that no request of it grants
 * anything once it is given up (`FINAL`), however late it is served. An owner that the program has named has no number.
 */
export class Claim {
    constructor(
        readonly terms: Terms,
        readonly owner: string,
    ) {}

    get key(): string {
        return this.terms.keys[0]!;
    }

    /** The request: the tokens, or nil. Sent twice, it is granted once. */
    acquire(): Command {
        const { verbAndKeys, options } = this.terms;
        return { key: this.key, words: [...verbAndKeys, this.owner, ...options] };
    }

    /** For each key: 1 if it is still held under its token, else 0. */
    renew(lease: number, tokens: readonly number[], ...more: string[]): Command[] {
        const words = ['PX', String(Math.max(1, Math.floor(lease))), ...more];
        return this.each(this.terms.isPermit ? 'sem.renew' : 'lock.renew', words, tokens);
    }

    /** For each key: nil if it was not held. */
    release(tokens: readonly number[]): Command[] {
        return this.terms.isPermit ? this.each('sem.release', [], tokens) : this.each('lock.release', ['ALL'], tokens);
    }

    /** Leaves a hold for this rest, or without one releases it; a repeated release is final. */
    end(tokens: readonly number[], rest: number | undefined, isFinal: boolean): Command[] {
        if (rest !== undefined) return this.renew(rest, tokens);
        return isFinal ? this.giveUp(tokens) : this.release(tokens);
    }

    /** Ends a hold, withdraws the wait, and makes the requests final. */
    giveUp(tokens: readonly number[]): Command[] {
        if (this.terms.owner !== undefined) return this.release(tokens);
        const verb = this.terms.isPermit ? 'sem.release' : 'lock.release';
        return this.terms.keys.map((key) => ({ key, words: [verb, key, this.owner, 'FINAL', '1'] }));
    }

    private each(verb: string, words: readonly string[], tokens: readonly number[]): Command[] {
        const { keys, isPermit, modeWords } = this.terms;
        return keys.map((key, place) => {
            const all = [verb, key, this.owner, ...modeWords, ...words];
            if (!isPermit && tokens.length > 0) all.push('TOKEN', String(tokens[place]));
            return { key, words: all };
        });
    }
}
