import { LONGEST_TIMER } from './terms.js';

/** What waits, and can be stopped. */
export class Wait {
    /** Among all that wait at a client. */
    place = 0;
    private stopped: { reason: unknown } | undefined;
    private wake: (() => void) | undefined;

    /** Ends it with this reason, which the next check throws. */
    stop(reason: unknown): void {
        this.stopped ??= { reason };
        this.ring();
    }

    check(): void {
        if (this.stopped) throw this.stopped.reason;
    }

    /** Wakes it. */
    ring(): void {
        this.wake?.();
    }

    /** So much time passes at once. */
    pass(_ms: number): void {
        this.ring();
    }

    /** The outcome of this promise; the reason of a stop. */
    until<T>(promise: Promise<T>): Promise<T> {
        return new Promise((resolve, reject) => {
            this.wake = () => {
                if (this.stopped) reject(this.stopped.reason);
            };
            promise.then(resolve, reject);
            this.wake();
        });
    }

    /** Until it is rung or stopped, at most so long. */
    sleep(ms: number): Promise<void> {
        if (this.stopped) return Promise.resolve();
        return new Promise((resolve) => {
            const timer = ms < LONGEST_TIMER ? setTimeout(() => this.wake?.(), ms) : undefined;
            this.wake = () => {
                clearTimeout(timer);
                this.wake = undefined;
                resolve();
            };
        });
    }
}
