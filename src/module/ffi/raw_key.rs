//! A key of the server, open for one call.

/// How a key is opened to read without a trace: no statistics, no event, no use noted, and a key whose TTL is over is left
/// alone. (Redis 7.0 knows `NOTOUCH` only: there it is an ordinary read, which counts a hit or a miss.)
pub(crate) const NO_TRACE: u32 = redis_module::raw::REDISMODULE_OPEN_KEY_NOTOUCH
    | redis_module::raw::REDISMODULE_OPEN_KEY_NONOTIFY
    | redis_module::raw::REDISMODULE_OPEN_KEY_NOSTATS
    | redis_module::raw::REDISMODULE_OPEN_KEY_NOEXPIRE;
