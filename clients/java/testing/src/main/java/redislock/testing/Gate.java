package redislock.testing;

/** Lets threads through while it is open. */
final class Gate {
    private boolean isOpen;

    synchronized void open() {
        isOpen = true;
        notifyAll();
    }

    synchronized void shut() {
        isOpen = false;
    }

    synchronized void await() {
        try {
            while (!isOpen) {
                wait();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
