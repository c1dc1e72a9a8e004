package redislock;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Counters and gauges of what this process has done through a {@link LockClient}.
 *
 * @param acquisitions        acquisitions that were granted, and holds that were resumed
 * @param acquisitionsRefused acquisitions that ended without the lock, because another owner held it or waited for it
 * @param acquisitionsFailed  acquisitions that ended with an error, also a {@link RefusedException}. (Cancelled ones
 *     are not counted.)
 * @param waits               acquisitions that waited in the server's queue
 * @param renewals            renewals that the server confirmed
 * @param renewalsFailed      attempted renewals that were not confirmed. A failed one is repeated until the lock is
 *                            lost
 * @param losses              losses that were reported
 * @param releases            releases that the server answered, including the answer that the lock was no longer held,
 *     and holds that were left to their lease
 * @param releasesFailed      releases, and withdrawals of waits, that were given up without a reply
 * @param connections         opened connections, including those to sentinels
 * @param holds               gauge: guards that are neither released nor closed, including those whose lock is lost.
 *                            (A lost hold of a thread that has ended counts until its lease is over.)
 * @param waiting             gauge: acquisitions that wait in the server's queue
 */
public record LockStatistics(
        long acquisitions,
        long acquisitionsRefused,
        long acquisitionsFailed,
        long waits,
        long renewals,
        long renewalsFailed,
        long losses,
        long releases,
        long releasesFailed,
        long connections,
        long holds,
        long waiting) {
    /**
     * The counters, by the names that all client packages have ({@code acquisitions_refused}).
     *
     * @return in a fixed order
     */
    public Map<String, Long> counters() {
        Map<String, Long> counters = new LinkedHashMap<>();
        counters.put("acquisitions", acquisitions);
        counters.put("acquisitions_refused", acquisitionsRefused);
        counters.put("acquisitions_failed", acquisitionsFailed);
        counters.put("waits", waits);
        counters.put("renewals", renewals);
        counters.put("renewals_failed", renewalsFailed);
        counters.put("losses", losses);
        counters.put("releases", releases);
        counters.put("releases_failed", releasesFailed);
        counters.put("connections", connections);
        return counters;
    }

    /**
     * The gauges, by the names that all client packages have.
     *
     * @return in a fixed order
     */
    public Map<String, Long> gauges() {
        Map<String, Long> gauges = new LinkedHashMap<>();
        gauges.put("holds", holds);
        gauges.put("waiting", waiting);
        return gauges;
    }
}
