/** By signal, what is called at its abort: one listener for all, because Node warns of more than ten. */
const listeners = new WeakMap<AbortSignal, { calls: Set<() => void>; abort: () => void }>();

/** Calls a function at the abort of a signal, until the returned function is called. */
export function onAbort(signal: AbortSignal, call: () => void): () => void {
    let listener = listeners.get(signal);
    if (listener === undefined) {
        const calls = new Set<() => void>();
        const abort = () => {
            for (const one of calls) one();
        };
        listener = { calls, abort };
        listeners.set(signal, listener);
    }
    const { calls, abort } = listener;
    const one = () => call();
    if (calls.size === 0) signal.addEventListener('abort', abort);
    calls.add(one);
    return () => {
        if (calls.delete(one) && calls.size === 0) signal.removeEventListener('abort', abort);
    };
}
