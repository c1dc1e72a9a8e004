package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.leader.event.LeaderEventPublisher;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import redislock.testing.Waiting;

/** Leaders that Spring Integration elects by a lock. */
class LeaderTest {
    private final Registries its = new Registries();
    private final List<LockRegistryLeaderInitiator> candidates = new ArrayList<>();

    @AfterEach
    void close() {
        candidates.forEach(LockRegistryLeaderInitiator::stop);
        Waiting.waitFor("candidates that end", () -> leaders() == 0);
        its.close();
    }

    @Test
    void another_candidate_follows_a_leader_that_yields() {
        start(its.other());
        start(its.other());
        LockRegistryLeaderInitiator first = awaitLeader();
        first.setBusyWaitMillis(1_000);
        first.getContext().yield();
        Waiting.waitFor("another leader", () -> leaders() == 1 && !first.getContext().isLeader());
    }

    @Test
    void another_candidate_follows_a_leader_that_stops() {
        start(its.other());
        start(its.other());
        LockRegistryLeaderInitiator first = awaitLeader();
        first.stop();
        Waiting.waitFor("another leader", () -> leaders() == 1 && !first.getContext().isLeader());
    }

    @Test
    void a_leader_keeps_a_lease_that_is_shorter_than_its_term() {
        start(its.other(300));
        LockRegistryLeaderInitiator leader = awaitLeader();
        long renewals = its.server.stat("renewals");
        Waiting.waitFor("heartbeats", () -> its.server.stat("renewals") > renewals + 8);
        assertEquals(0, its.server.stat("grants_expired"));
        assertEquals(1, its.server.stat("grants"));
        assertEquals(true, leader.getContext().isLeader());
    }

    @Test
    void a_leader_whose_lock_is_broken_is_revoked() {
        List<String> events = new CopyOnWriteArrayList<>();
        start(its.other());
        awaitLeader().setLeaderEventPublisher(recorder(events));
        its.server.line("LOCK.BREAK reg:role");
        Waiting.waitFor("a new term", () -> its.server.stat("grants") == 2 && leaders() == 1);
        assertEquals("revoked", events.get(0));
    }

    private LockRegistryLeaderInitiator start(FencedLockRegistry registry) {
        DefaultCandidate candidate = new DefaultCandidate("candidate" + candidates.size(), "role");
        LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(registry, candidate);
        initiator.setLeaderEventPublisher(recorder(new CopyOnWriteArrayList<>()));
        initiator.setHeartBeatMillis(20);
        initiator.setBusyWaitMillis(20);
        candidates.add(initiator);
        initiator.start();
        return initiator;
    }

    private LockRegistryLeaderInitiator awaitLeader() {
        Waiting.waitFor("a leader", () -> leaders() == 1);
        return candidates.stream().filter(one -> one.getContext().isLeader()).findFirst().orElseThrow();
    }

    private long leaders() {
        return candidates.stream().filter(one -> one.getContext().isLeader()).count();
    }

    private static LeaderEventPublisher recorder(List<String> events) {
        return new LeaderEventPublisher() {
            @Override
            public void publishOnGranted(Object source, Context context, String role) {
                events.add("granted");
            }

            @Override
            public void publishOnRevoked(Object source, Context context, String role) {
                events.add("revoked");
            }

            @Override
            public void publishOnFailedToAcquire(Object source, Context context, String role) {
                events.add("failed");
            }
        };
    }
}
