package clientbench;

/** A client object of one library: it makes the lock of each contender. */
interface Locks extends AutoCloseable {
  /** What `lock()` returns where the library has no fencing tokens. */
  long NO_TOKEN = 0;

  Lock lock(String name);

  @Override
  void close();

  /** A lock as one contender has it. */
  interface Lock {
    /** Waits for the lock, and returns its fencing token. */
    long lock();

    void unlock();
  }

  /** A lock of java.util.concurrent's interface, without tokens. */
  static Lock of(java.util.concurrent.locks.Lock lock) {
    return new Lock() {
      @Override
      public long lock() {
        lock.lock();
        return NO_TOKEN;
      }

      @Override
      public void unlock() {
        lock.unlock();
      }
    };
  }
}
