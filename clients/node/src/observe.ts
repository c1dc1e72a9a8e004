import type { LockLostError } from './errors.js';
import type { Mode, Terms } from './terms.js';

/** One acquisition of a lock, and the hold that comes of it: all their events have the same object. */
export interface Subject {
    /** The name of the lock, of several the names with commas between. */
    readonly name: string;
    readonly kind: Mode | 'semaphore';
    /** When it was granted, as of `Date.now()`; undefined before. */
    readonly grantedAt: number | undefined;
}

/**
 * Learns what a `LockClient` does, for metrics and traces. Its functions are called in the order of the events, in
 * later turns of the event loop and in the asynchronous context of the event. What they throw is a warning.
 */
export interface Observer {
    /** An acquisition begins. */
    asked?(lock: Subject): void;
    /** It has ended, after so many milliseconds; without a grant there is an error, unless its wait was over. */
    answered?(lock: Subject, granted: boolean, waited: number, error?: unknown): void;
    /**
     * A hold was released or left, so many milliseconds after its grant: also if the server has not answered in time.
     * Not told of a hold that was lost.
     */
    released?(lock: Subject, held: number): void;
    /** A hold was lost before its release, which may be what has found it. */
    lost?(lock: Subject, reason: LockLostError): void;
    /** No renewal is confirmed a third of the lease after one was due; for how many milliseconds it has been due. */
    late?(lock: Subject, by: number): void;
}

/** What a client has done, and what it holds and waits for now, by the names that all client packages have. */
export interface Statistics {
    readonly counters: {
        /** Acquisitions that were granted. */
        readonly acquisitions: number;
        /** Those that ended without the lock, because another owner held it or waited for it. */
        readonly acquisitions_refused: number;
        /** Those that ended with an error. (Aborted ones are not counted.) */
        readonly acquisitions_failed: number;
        /** Acquisitions that waited in the server's queue. */
        readonly waits: number;
        /** Renewals that the server confirmed, and attempts that it did not. */
        readonly renewals: number;
        readonly renewals_failed: number;
        /** Losses that were reported. */
        readonly losses: number;
        /** Releases that the server answered, and those, also of waits, that were given up. */
        readonly releases: number;
        readonly releases_failed: number;
        /** Opened connections of this package. */
        readonly connections: number;
    };
    readonly gauges: {
        /** Holds that are not released, also lost ones. */
        readonly holds: number;
        /** Acquisitions that wait in the server's queue. */
        readonly waiting: number;
    };
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** What a client counts, and has its observer learn. */
export class Events {
    readonly counters: Mutable<Statistics['counters']> = {
        acquisitions: 0,
        acquisitions_refused: 0,
        acquisitions_failed: 0,
        waits: 0,
        renewals: 0,
        renewals_failed: 0,
        losses: 0,
        releases: 0,
        releases_failed: 0,
        connections: 0,
    };
    readonly gauges: Mutable<Statistics['gauges']> = { holds: 0, waiting: 0 };

    constructor(
        private readonly observer: Observer,
        private readonly warn: (message: string) => void,
    ) {}

    /** Whether the observer learns of this event. */
    has(event: keyof Observer): boolean {
        return this.observer[event] !== undefined;
    }

    tell<E extends keyof Observer>(event: E, ...words: Parameters<NonNullable<Observer[E]>>): void {
        if (!this.has(event)) return;
        setImmediate(() => {
            try {
                (this.observer[event] as (...all: typeof words) => void)(...words);
            } catch (error) {
                this.warn(`the observer has thrown in ${event}(): ${String(error)}`);
            }
        });
    }
}

/** The acquisition of these terms, for the observer. */
export class Observed implements Subject {
    readonly name: string;
    readonly kind: Subject['kind'];
    grantedAt: number | undefined;
    private readonly begun = performance.now();
    private isAnswered = false;

    constructor(
        private readonly events: Events,
        { name, kind }: Terms,
    ) {
        this.name = name;
        this.kind = kind;
        events.tell('asked', this);
    }

    /** The end of the acquisition, once: granted, refused, cancelled, or failed with this error. */
    answer(outcome: 'granted' | 'refused' | 'cancelled' | 'failed', error?: unknown): void {
        if (this.isAnswered) return;
        this.isAnswered = true;
        const { counters, gauges } = this.events;
        if (outcome === 'granted') {
            this.grantedAt = Date.now();
            counters.acquisitions += 1;
            gauges.holds += 1;
        } else if (outcome !== 'cancelled') counters[`acquisitions_${outcome}`] += 1;
        const waited = performance.now() - this.begun;
        if (error === undefined) this.events.tell('answered', this, outcome === 'granted', waited);
        else this.events.tell('answered', this, false, waited, error);
    }
}
