//! The agent of redis-rs: reads orders, writes answers, as driver/agent.rs lists them.
#[path = "../../../examples/redis-rs/redis_lock.rs"]
mod redis_lock;
#[path = "../../../examples/redis-rs/tickets.rs"]
mod tickets;
mod tickets_agent;

use std::time::Instant;

use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{cmd, Client, RedisResult};
use redis_lock::Locks;

async fn raw(mut plain: MultiplexedConnection, request: &[&str]) -> RedisResult<Option<u64>> {
    let &[wait, key, owner] = request else { panic!("{request:?}") };
    cmd("LOCK.ACQUIRE").arg(&[key, owner, "BLOCK", wait]).query_async(&mut plain).await
}

async fn ping_behind(mut plain: MultiplexedConnection, request: &[&str]) -> RedisResult<String> {
    let waiting = raw(plain.clone(), request);
    let ping = async {
        let start = Instant::now();
        cmd("PING").query_async::<()>(&mut plain).await.map(|()| start.elapsed().as_millis())
    };
    let (_, took) = tokio::join!(biased; waiting, ping); // only the PING is measured
    Ok(format!("ping {}", took?))
}

fn shown(token: Option<u64>) -> String {
    token.map_or("nil".into(), |token| format!("token {token}"))
}

async fn answer(locks: &Locks, plain: &MultiplexedConnection, order: &str) -> RedisResult<String> {
    let words: Vec<&str> = order.split(' ').collect();
    let number = |text: &str| text.parse().expect("a number");
    Ok(match words[..] {
        ["acquire", key, owner, wait, lease] => shown(locks.acquire(key, owner, number(wait), number(lease)).await?),
        ["renew", key, owner, token, lease] => bit(locks.renew(key, owner, number(token), number(lease)).await?),
        ["release", key, owner, token] => bit(locks.release(key, owner, number(token)).await?),
        ["raw", ref request @ ..] => shown(raw(plain.clone(), request).await?),
        ["ping-behind", ref request @ ..] => ping_behind(plain.clone(), request).await?,
        _ => panic!("{order}"),
    })
}

fn bit(yes: bool) -> String {
    u8::from(yes).to_string()
}

#[tokio::main]
async fn main() -> RedisResult<()> {
    let words: Vec<String> = std::env::args().collect();
    if words.len() > 3 {
        return tickets_agent::serve(&words[1], &words[2], words.get(4)).await;
    }
    let client = Client::open(format!("redis://{}:{}", words[1], words[2]))?;
    let plain = client.get_multiplexed_async_connection().await?;
    let locks = Locks(client.clone(), ConnectionManager::new(client).await?);
    println!("ready");
    for order in std::io::stdin().lines().map_while(Result::ok).take_while(|order| order != "quit") {
        let answer = answer(&locks, &plain, &order).await;
        println!("{}", answer.unwrap_or_else(|error| format!("error {error}").replace('\n', " ")));
    }
    Ok(())
}
