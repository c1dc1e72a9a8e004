//! Redisson's `RLock` in reworded scripts: the same calls, the same replies.

/// KEYS: lock; ARGV: lease, owner. Nil when taken, else the holder's time to live.
pub const TAKE: &str = "\
    local free = redis.call('EXISTS', KEYS[1]) == 0 \
    if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
      redis.call('HINCRBY', KEYS[1], ARGV[2], 1) \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
      return nil \
    end \
    return redis.call('PTTL', KEYS[1])";

/// KEYS: lock, channel; ARGV: lease, owner. Nil: not the owner; 0: still held; 1: free.
pub const GIVE: &str = "\
    if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end \
    if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
      return 0 \
    end \
    redis.call('DEL', KEYS[1]) \
    redis.call('PUBLISH', KEYS[2], '0') \
    return 1";

/// KEYS: lock; ARGV: lease, owner.
pub const RENEW: &str = "\
    if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end \
    redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
    return 1";

/// KEYS: lock, channel.
pub const FORCE: &str = "\
    if redis.call('DEL', KEYS[1]) == 0 then return 0 end \
    redis.call('PUBLISH', KEYS[2], '0') \
    return 1";
