//! Locks of the redis-lock module for redis-rs. Times are in milliseconds. None: not granted in time; false: not held.
use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{cmd, AsyncConnectionConfig, Client, Cmd, RedisResult};
use tokio::time::{sleep, Duration, Instant};

pub struct Locks<W = Client, C = ConnectionManager>(pub W, pub C); // for the waits, and for what is answered at once

impl Locks {
    pub async fn acquire(&self, key: &str, owner: &str, wait: u64, lease: u64) -> RedisResult<Option<u64>> {
        let until = Instant::now() + Duration::from_millis(wait);
        let number = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::new(5, 0))); // not 500 ms
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_millis().clamp(1, 2_000) as u64;
            let words = (key, owner, "ONCE", "PX", lease, "SEQ", number, "BLOCK", left);
            let own = self.0.get_multiplexed_async_connection_with_config(&config);
            match async { cmd("LOCK.ACQUIRE").arg(words).query_async(&mut own.await?).await }.await {
                Ok(None) => {}
                Err(lost) if lost.is_io_error() => sleep(Duration::from_millis(50)).await, // ONCE: safe to repeat
                answer => return answer,
            }
            if Instant::now() >= until {
                return self.twice(cmd("LOCK.RELEASE").arg((key, owner, "FINAL", number))).await.map(|_| None);
            }
        }
    }
}
impl<W, C: ConnectionLike + Clone + Send> Locks<W, C> {
    pub async fn renew(&self, key: &str, owner: &str, token: u64, lease: u64) -> RedisResult<bool> {
        self.twice(cmd("LOCK.RENEW").arg((key, owner, "PX", lease, "TOKEN", token))).await
    }
    pub async fn release(&self, key: &str, owner: &str, token: u64) -> RedisResult<bool> {
        self.twice(cmd("LOCK.RELEASE").arg((key, owner, "ALL", "TOKEN", token))).await
    }
    async fn twice(&self, request: &Cmd) -> RedisResult<bool> {
        let first: RedisResult<Option<u64>> = request.query_async(&mut self.1.clone()).await;
        let lost = first.as_ref().is_err_and(|error| error.is_io_error()); // with the token, safe to send again
        Ok(Some(1) == if lost { request.query_async(&mut self.1.clone()).await? } else { first? })
    }
}
