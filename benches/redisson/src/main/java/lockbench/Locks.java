package lockbench;

/** The clients of one job, connected to one server. */
interface Locks extends AutoCloseable {
  /**
   * The lock that a thread of the job takes; called by that thread, before anything is measured.
   */
  Lock lockOf(int thread);

  @Override
  void close();

  /** A lock as one thread sees it. */
  interface Lock extends AutoCloseable {
    /** What lock() returns where the lock has no fencing tokens. */
    long NO_TOKEN = 0;

    /** Waits until this thread has the lock, and returns its fencing token. */
    long lock();

    /** Gives it back; fails when this thread had lost it. */
    void unlock();

    @Override
    default void close() {}
  }
}
