//! `redis-lock leader`: who is the leader of an election.

use std::time::Duration;

use redis_lock_client::{Election, Leader};
use tokio::time::sleep;

use crate::escape::shown;
use crate::failure::Failure;
use crate::key::Key;
use crate::output::{closed, print};
use crate::servers::Connect;

/// Show the leader of an election
///
/// The leader is the holder of the lock: this prints the note of its hold (`run --note`). Without a note, or with the
/// note "none", it prints its token, and "no token" for a hold of Redisson or a string. Ends with 1 when there is none.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    key: Key,

    /// Print each next leader, and "none" while there is none.
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    connect: Connect,
}

/// How long after a failure the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let key = args.key.bytes();
    let election = Election::new(&server, key);
    if !args.follow {
        let leader = election.leader().await;
        let leader = leader.map_err(|error| Failure::of(&error, Some(key)))?;
        print(leader.iter().map(text))?;
        return Ok(leader.is_none().into());
    }
    let mut leaders = election.observe();
    let mut is_told = false;
    let follow = async {
        loop {
            match leaders.next().await {
                Ok(leader) => print([leader.as_ref().map_or("none".into(), text)])?,
                Err(error) if !error.is_passing() => return Err(Failure::of(&error, Some(key))),
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        Failure::of(&error, Some(key)).tell();
                    }
                    sleep(PAUSE).await;
                    continue;
                }
            }
            is_told = false;
        }
    };
    tokio::select! {
        failure = follow => failure,
        () = closed() => Ok(0),
    }
}

fn text(leader: &Leader) -> String {
    match (&leader.note[..], leader.token) {
        (b"" | b"none", 0) => "no token".into(),
        (b"" | b"none", token) => format!("token {token}"),
        (note, _) => shown(note),
    }
}
