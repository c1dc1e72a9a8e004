package redislock;

/** Leases that something renews, as a plain connection sees them. */
final class Leases {
  /** With a renewal every third of the lease, more than one lease's length. */
  private static final int RENEWALS = 4;

  private Leases() {}

  /** Waits until the key's TTL has risen so often that it would have run out otherwise. */
  static void awaitRenewals(Conn conn, String key) {
    long[] last = {conn.number("PTTL " + key)};
    for (int i = 0; i < RENEWALS; i++) {
      Until.until("a renewal", () -> rose(conn, key, last));
    }
  }

  private static boolean rose(Conn conn, String key, long[] last) {
    long left = conn.number("PTTL " + key);
    boolean rose = left > last[0];
    last[0] = left;
    return rose;
  }
}
