package redislock;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * The state of a semaphore ({@code SEM.INFO}).
 *
 * @param permits     the number of permits, held and free
 * @param free        the number of free permits; negative after a change to fewer than are held
 * @param held        the number of held permits
 * @param nextEnd     the time until the next lease ends, or null when none does
 * @param waiters     the number of waiting requests
 * @param longestWait how long the first of them has waited
 */
public record SemaphoreInfo(
        long permits, long free, long held, @Nullable Duration nextEnd, long waiters, Duration longestWait) {}
