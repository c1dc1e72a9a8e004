package redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/**
 * Eight threads of one Redisson instance and eight clients of the module on one name of each type:
 * each side has its share, and there are never more holders than the type has room for.
 */
class TypesTest {
  private static final int EACH = 8;
  private static final int GRANTS = Integer.getInteger("tested.grants") / 10;
  private static final int LEAST_PERCENT = 25;
  private static final long LIMIT_SECONDS = 600;

  @RegisterExtension final Stage stage = new Stage();

  /** What both sides want. */
  enum Type {
    EXCLUSIVE(1),
    SPIN(1),
    WRITE(1),
    /** Every fourth of each side writes. Redisson's readers that overlap keep out everybody else. */
    READ_WRITE(EACH * 2),
    PERMIT(1),
    PERMITS(3);

    final int room;

    Type(int room) {
      this.room = room;
    }

    boolean writes(int number) {
      return this == WRITE || this == READ_WRITE && number % 4 == 0;
    }

    int takes(int number) {
      return this == READ_WRITE && writes(number) ? room : 1;
    }

    Side redisson(RedissonClient redisson, int number) {
      return switch (this) {
        case EXCLUSIVE -> Side.redisson(redisson.getLock(Side.LOCK));
        case SPIN -> Side.redisson(redisson.getSpinLock(Side.LOCK));
        case PERMIT, PERMITS -> permits(redisson.getPermitExpirableSemaphore(Side.LOCK));
        default -> {
          var both = redisson.getReadWriteLock(Side.LOCK);
          RLock lock = writes(number) ? both.writeLock() : both.readLock();
          yield taking(takes(number), Side.redisson(lock));
        }
      };
    }

    Side module(Conn conn, int number) {
      String owner = "module:" + number;
      return switch (this) {
        case EXCLUSIVE, SPIN -> Side.module(conn, owner);
        case PERMIT, PERMITS -> Side.module(conn, owner, "SEM");
        default -> {
          String mode = writes(number) ? "WRITE" : "READ";
          yield taking(takes(number), Side.module(conn, owner, "LOCK", mode));
        }
      };
    }

    boolean isSemaphore() {
      return this == PERMIT || this == PERMITS;
    }

    /** Redisson's holders that leave no room. */
    List<Side> holders(RedissonClient redisson) {
      return switch (this) {
        case READ_WRITE -> List.of(WRITE.redisson(redisson, 0));
        case PERMITS -> Stream.generate(() -> redisson(redisson, 0)).limit(room).toList();
        default -> List.of(redisson(redisson, 0));
      };
    }

    /** The same side, which takes so much of the room. */
    private static Side taking(int room, Side side) {
      return new Side() {
        @Override
        public void enter() throws InterruptedException {
          side.enter();
        }

        @Override
        public void leave() {
          side.leave();
        }

        @Override
        public int takes() {
          return room;
        }
      };
    }

    private static Side permits(RPermitExpirableSemaphore semaphore) {
      return new Side() {
        private String id;

        @Override
        public void enter() throws InterruptedException {
          id = semaphore.tryAcquire(WAIT_SECONDS, LEASE_SECONDS, TimeUnit.SECONDS);
          if (id == null) {
            throw new AssertionError("Redisson waited in vain");
          }
        }

        @Override
        public void leave() {
          semaphore.release(id);
        }
      };
    }
  }

  @ParameterizedTest
  @EnumSource
  void eachSideHasItsShare(Type type) throws InterruptedException {
    // A Redisson client on a slow machine may need a while to take what was left free for it.
    Server server = stage.server("--lock.free-window", "2000");
    Conn conn = server.conn();
    if (type.isSemaphore()) {
      conn.line("SEM.SET " + Side.LOCK + " " + type.room);
    }
    Crowd crowd = stage.add(new Crowd(GRANTS, type.room));
    RedissonClient redisson = Clients.of(server.port);
    stage.add(() -> redisson.shutdown(0, 2, TimeUnit.SECONDS));
    for (int i = 0; i < EACH; i++) {
      crowd.addRedisson(type.redisson(redisson, i));
      crowd.addModule(type.module(server.conn(), i));
    }
    // Redisson holds all of it until every client of the module waits.
    List<Side> holders = type.holders(redisson);
    for (Side holder : holders) {
      holder.enter();
    }
    crowd.begin();
    String waiters = type.isSemaphore() ? "sem_waiters" : "waiters";
    Until.until("the module's clients wait", () -> server.stat(waiters) == EACH);
    long begun = System.nanoTime();
    holders.forEach(Side::leave);
    crowd.awaitEnd(LIMIT_SECONDS);
    long millis = (System.nanoTime() - begun) / 1_000_000;
    int theirs = crowd.redisson().grants.get();
    int ours = crowd.module().grants.get();
    System.out.printf(
        "measured: %s: Redisson %d, module %d grants, %d a second; most in a row %d and %d;"
            + " %d windows, %d unused%n",
        type,
        theirs,
        ours,
        (theirs + ours) * 1_000L / Math.max(1, millis),
        crowd.module().mostInARow.get(),
        crowd.redisson().mostInARow.get(),
        server.stat("windows"),
        server.stat("windows_unused"));
    if (type == Type.PERMITS) {
      // While Redisson wakes up to take the permit that is left free, the module hands the other ones off: the share
      // says how quick the machine is, and each window gives its clients one.
      long taken = server.stat("windows_taken");
      assertTrue(taken > 0 && theirs >= taken, theirs + " grants, " + taken + " windows taken");
    } else if (type != Type.READ_WRITE) {
      int least = 100 * Math.min(theirs, ours) / (theirs + ours);
      assertTrue(least >= LEAST_PERCENT, least + " %");
    }
  }
}
