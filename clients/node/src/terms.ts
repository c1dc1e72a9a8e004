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
}

const DEFAULT_LEASE = 30_000;
/** A hundred years. */
const LONGEST_LEASE = 100 * 365 * 86_400_000;
/** Longer times are no timers in Node. */
export const LONGEST_TIMER = 2 ** 31 - 1;
const MOST_KEYS = 1_024;
export const MOST_PERMITS = 2 ** 31 - 1;

/** The checked terms of each acquisition of a lock, of several, or of a permit. */
export interface Terms extends HoldOptions {
    /** As they are stored: with the client's prefix. In a cluster all are in one slot. */
    readonly keys: readonly string[];
    readonly lease: number;
    readonly margin: number;
    readonly renew: boolean;
    readonly maxHold: number;
    readonly isPermit: boolean;
    readonly permits?: number | undefined;
    readonly owner?: string | undefined;
    readonly modeWords: readonly string[];
    /** The words of the request before its owner, and those behind. */
    readonly verbAndKeys: readonly string[];
    readonly options: readonly string[];
}

export function termsOf(keys: readonly string[], options: LockOptions & SemaphoreOptions, isPermit: boolean): Terms {
    if (keys.length < 1 || keys.length > MOST_KEYS) throw new ConfigError(`a lock has 1 to ${MOST_KEYS} keys`);
    if (new Set(keys).size < keys.length) throw new ConfigError('a key is named twice');
    checkOptions(options, [...HOLD_OPTIONS, ...(isPermit ? ['permits'] : ['mode', 'owner', 'note'])]);
    const { renew = true, mode = 'exclusive', permits, owner, note } = options;
    const maxHold = options.maxHold === undefined ? Infinity : checkedLease(options.maxHold, 'maxHold');
    const lease = Math.min(checkedLease(options.lease ?? DEFAULT_LEASE, 'lease'), maxHold);
    const margin = options.margin ?? lease / 6;
    if (typeof margin !== 'number' || !(margin >= 0 && margin <= lease / 2))
        throw new ConfigError('margin is at least 0 and at most half of lease');
    if (!['exclusive', 'read', 'write'].includes(mode)) throw new ConfigError('mode is exclusive, read or write');
    if (typeof renew !== 'boolean') throw new ConfigError('renew is true or false');
    if (permits !== undefined) checkPermits(permits, 1);
    if (owner !== undefined) checkOwner(owner, mode);
    if (note !== undefined) {
        checkNote(note);
        if (mode !== 'exclusive' || keys.length > 1)
            throw new ConfigError('a note is for an exclusive lock of one key');
    }
    const modeWords = mode === 'exclusive' ? [] : [mode.toUpperCase()];
    const words = [...modeWords, 'PX', String(lease)];
    if (permits !== undefined) words.push('LIMIT', String(permits));
    if (!isPermit) words.push('ONCE');
    if (note !== undefined) words.push('NOTE', note);
    if (owner === undefined) words.push('SEQ', '1');
    const verb = isPermit ? 'sem.acquire' : keys.length > 1 ? 'lock.macquire' : 'lock.acquire';
    const verbAndKeys = [verb, ...(keys.length > 1 ? [String(keys.length)] : []), ...keys];
    return { keys, lease, margin, renew, maxHold, isPermit, permits, owner, modeWords, verbAndKeys, options: words };
}

const HOLD_OPTIONS = ['lease', 'renew', 'margin', 'maxHold'];

/** A misspelt option would be ignored, and its default count. */
export function checkOptions(options: object, names: readonly string[]): void {
    if (typeof options !== 'object' || options === null) throw new ConfigError('the options are an object');
    for (const name of Object.keys(options)) {
        if (!names.includes(name)) throw new ConfigError(`unknown option ${name}: there are ${names.join(', ')}`);
    }
}

export function checkNote(note: string): void {
    if (typeof note !== 'string' || Buffer.byteLength(note) > 256)
        throw new ConfigError('a note is a string of at most 256 bytes');
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

export function checkPermits(permits: number, least: number): void {
    if (!Number.isInteger(permits) || permits < least || permits > MOST_PERMITS) {
        throw new ConfigError(`permits is a whole number from ${least} to ${MOST_PERMITS}`);
    }
}

/** The longest time of a wait in milliseconds; `Infinity` for no limit. */
export function checkedWait(wait: number, name = 'wait'): number {
    if (typeof wait !== 'number' || !(wait >= 0))
        throw new ConfigError(`${name} is a number of milliseconds, and not negative`);
    return wait;
}

export function checkedLease(lease: number, name: string): number {
    // One millisecond is lost to rounding.
    if (typeof lease !== 'number' || !(lease >= 2 && lease <= LONGEST_LEASE)) {
        throw new ConfigError(`${name} is 2 milliseconds to a hundred years`);
    }
    return Math.floor(lease);
}

/** The messages do not quote the owner: it is a credential. */
function checkOwner(owner: string, mode: Mode): void {
    const bytes = typeof owner === 'string' ? Buffer.byteLength(owner) : 0;
    if (bytes < 1 || bytes > 256) throw new ConfigError('an owner is a string of 1 to 256 bytes');
    if (owner.startsWith('#')) throw new ConfigError("owners that begin with '#' are reserved");
    if (mode !== 'exclusive' && (owner === 'mode' || owner.endsWith(':write'))) {
        throw new ConfigError("the owner 'mode', or one that ends in ':write', cannot hold read or write");
    }
}

/**
 * The commands of one acquisition. Its owner is fresh, and its number 1 (`SEQ`), so that no request of it grants
 * anything once it is given up (`FINAL`), however late it is served. An owner that the program has named has no number.
 */
export class Claim {
    constructor(
        readonly terms: Terms,
        private readonly owner: string,
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
