//! The agent of redis-rs' tickets: the orders of driver/ticket_agent.rs, each in a task.
use std::collections::HashMap;
use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClientBuilder;
use redis::{Client, RedisResult};

use crate::tickets::Tickets;
use crate::{bit, shown};

/// In a cluster, `shard` is the hash tag of the keys.
pub async fn serve(host: &str, port: &str, shard: Option<&String>) -> RedisResult<()> {
    match shard {
        Some(shard) => {
            let nodes = ClusterClientBuilder::new([format!("redis://{host}:{port}")]);
            serve_with(Tickets::in_cluster(nodes, shard).await?).await;
        }
        None => {
            let client = Client::open(format!("redis://{host}:{port}?protocol=resp3"))?;
            serve_with(Tickets::new(client).await?).await;
        }
    }
    Ok(())
}

async fn serve_with<C: ConnectionLike + Clone + Send + Sync + 'static>(tickets: Tickets<C>) {
    let tickets = Arc::new(tickets);
    let mut running = HashMap::new();
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let order: Vec<String> = line.split(' ').map(String::from).collect();
        if order[1] == "cancel" {
            let task: tokio::task::JoinHandle<()> = running.remove(&order[2]).expect("a wait");
            task.abort();
            println!("{} cancelled", order[2]);
        } else {
            running.insert(order[0].clone(), tokio::spawn(carry_out(Arc::clone(&tickets), order)));
        }
    }
}

async fn carry_out<C: ConnectionLike + Clone + Send + Sync + 'static>(tickets: Arc<Tickets<C>>, order: Vec<String>) {
    let words: Vec<&str> = order.iter().map(String::as_str).collect();
    let answer = answer(&tickets, &words[1..]).await;
    println!("{} {}", words[0], answer.unwrap_or_else(|error| format!("error {error}").replace('\n', " ")));
}

async fn answer<C: ConnectionLike + Clone + Send + Sync + 'static>(
    tickets: &Tickets<C>,
    words: &[&str],
) -> RedisResult<String> {
    let number = |text: &str| text.parse().expect("a number");
    Ok(match *words {
        ["acquire", key, owner, wait, lease] => shown(tickets.acquire(key, owner, number(wait), number(lease)).await?),
        ["renew", key, owner, token, lease] => {
            bit(tickets.locks.renew(key, owner, number(token), number(lease)).await?)
        }
        ["release", key, owner, token] => bit(tickets.locks.release(key, owner, number(token)).await?),
        _ => panic!("{words:?}"),
    })
}
