package lockbench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.commands.ProtocolCommand;

/** Waits by tickets on a real server with the module that LOCK_MODULE names. */
@EnabledIfEnvironmentVariable(named = "LOCK_MODULE", matches = ".+")
@Timeout(60)
class TicketClientTest {
  private static final ProtocolCommand ACQUIRE = "LOCK.ACQUIRE"::getBytes;
  private static final ProtocolCommand RELEASE = "LOCK.RELEASE"::getBytes;
  private static final long LONG_MS = 30_000;

  /** Lettuce reports that it connects again. */
  private static final Logger RECONNECTS = Logger.getLogger("io.lettuce");

  private Server server;
  private Jedis other;
  private RedisClient lettuce;
  private TicketClient client;

  @BeforeEach
  void start() throws Exception {
    RECONNECTS.setLevel(Level.WARNING);
    server = new Server(List.of("--loadmodule", Server.module()));
    other = server.connect();
    lettuce = RedisClient.create("redis://127.0.0.1:" + server.port());
    client = new TicketClient(lettuce, true);
  }

  @AfterEach
  void stop() {
    client.close();
    lettuce.shutdown();
    other.close();
    server.close();
  }

  @Test
  void aFreeLockIsGrantedAtOnceAndReleasedOnce() throws Exception {
    long token = client.acquire("k", "us", LONG_MS, LONG_MS);
    assertTrue(client.release("k", "us", token));
    assertFalse(client.release("k", "us", token));
    assertEquals(0, lockInfo("tickets_queued"));
  }

  @Test
  void theMessageGrantsTheLock() throws Exception {
    long before = heldByTheOther();
    Waiter waiter = new Waiter();
    other.sendCommand(RELEASE, "k", "other");
    assertTrue(waiter.token() > before);
    assertEquals(1, lockInfo("tickets_granted"));
    assertEquals(1, lockInfo("renewals"));
  }

  @Test
  void aNewSubscriptionAsksAgain() throws Exception {
    long before = heldByTheOther();
    Waiter waiter = new Waiter();
    // At once: at the release the channel has no subscriber.
    try (Transaction together = other.multi()) {
      together.sendCommand("CLIENT"::getBytes, "KILL", "TYPE", "PUBSUB");
      together.sendCommand(RELEASE, "k", "other");
      together.exec();
    }
    assertTrue(waiter.token() > before);
    assertEquals(1, lockInfo("tickets_unheard"));
  }

  @Test
  void aBrokenCommandConnectionLosesNoWait() throws Exception {
    long before = heldByTheOther();
    Waiter waiter = new Waiter();
    try (Transaction together = other.multi()) {
      together.sendCommand("CLIENT"::getBytes, "KILL", "TYPE", "NORMAL");
      together.sendCommand(RELEASE, "k", "other");
      together.exec();
    }
    assertTrue(waiter.token() > before);
  }

  @Test
  void aMessageOfOthersIsNotBelieved() throws Exception {
    long before = heldByTheOther();
    Waiter waiter = new Waiter();
    other.publish(other.pubsubChannels("tickets:*").get(0), "granted " + before + " 1");
    until(() -> lockInfo("tickets_taken_over") == 1);
    assertFalse(waiter.outcome.isDone());
    other.sendCommand(RELEASE, "k", "other");
    assertTrue(waiter.token() > before);
  }

  @Test
  void theLimitOfTheWaitIsATimeout() {
    heldByTheOther();
    // The client's clock or the message of the server: either may be first.
    for (int n = 0; n < 10; n++) {
      assertThrows(TimeoutException.class, () -> client.acquire("k", "us", LONG_MS, 20));
    }
    until(() -> lockInfo("tickets") == 0);
  }

  @Test
  void anInterruptedWaitIsWithdrawn() {
    heldByTheOther();
    Waiter waiter = new Waiter();
    waiter.interrupt();
    ExecutionException ended = assertThrows(ExecutionException.class, waiter::token);
    assertInstanceOf(InterruptedException.class, ended.getCause());
    until(() -> lockInfo("tickets_withdrawn") == 1);
  }

  /** A thread that waits for the lock; made when the server has its ticket. */
  private final class Waiter extends Thread {
    final CompletableFuture<Long> outcome = new CompletableFuture<>();

    Waiter() {
      start();
      until(() -> lockInfo("tickets") == 1);
    }

    @Override
    public void run() {
      try {
        outcome.complete(client.acquire("k", "us", LONG_MS, LONG_MS));
      } catch (Exception error) {
        outcome.completeExceptionally(error);
      }
    }

    long token() throws Exception {
      return outcome.get(LONG_MS, TimeUnit.MILLISECONDS);
    }
  }

  private long heldByTheOther() {
    return (Long) other.sendCommand(ACQUIRE, "k", "other", "PX", "" + LONG_MS);
  }

  private long lockInfo(String field) {
    return (long) Counters.number(other.info("everything"), "lock_" + field);
  }

  private static void until(BooleanSupplier condition) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "timed out waiting for the server");
    }
  }
}
