package clientbench;

/** No lock at all: the updates that its contenders lose show that the check of the cells works. */
final class Unlocked implements Locks, Locks.Lock {
  @Override
  public Lock lock(String name) {
    return this;
  }

  @Override
  public long lock() {
    return NO_TOKEN;
  }

  @Override
  public void unlock() {}

  @Override
  public void close() {}
}
