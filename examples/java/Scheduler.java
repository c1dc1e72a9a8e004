// A scheduler, of which several processes run: one is the leader and works; when it ends, another one goes on.
// Run: java -cp 'redis-lock-client-0.1.0.jar:lib/*' Scheduler.java redis://127.0.0.1:6379
import java.time.Duration;
import redislock.Election;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockClosedException;
import redislock.LockException;
import redislock.LockLostException;
import redislock.LockOptions;

final class Scheduler {
    private Scheduler() {}

    public static void main(String[] arguments) throws InterruptedException {
        String name = "pid " + ProcessHandle.current().pid();
        LockClient client = LockClient.create(arguments.length > 0 ? arguments[0] : "redis://127.0.0.1:6379");
        // After SIGTERM: the leader resigns, a candidate leaves the queue. The status is 143.
        Runtime.getRuntime().addShutdownHook(new Thread(client::close));
        Election election = client.election("scheduler", LockOptions.defaults().lease(Duration.ofSeconds(10)));
        while (true) {
            try (Guard leadership = election.campaign(name)) {
                System.out.println("leader under token " + leadership.token());
                while (true) {
                    // After a loss it throws, and writes nothing: another process may be the leader.
                    leadership.execute("RPUSH", "scheduler:ticks", name);
                    Thread.sleep(100);
                }
            } catch (LockClosedException end) {
                return; // the hook runs
            } catch (LockLostException lost) {
                System.err.println("no longer the leader: " + lost.getMessage());
            } catch (LockException error) {
                System.err.println(error.getMessage()); // the server is away, or refuses: a candidate again
                Thread.sleep(1_000);
            }
        }
    }
}
