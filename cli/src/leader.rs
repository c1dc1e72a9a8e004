//! `redis-lock leader`: who is the leader of an election.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_lock_client::{Election, Leader};
use serde_json::{json, Value};
use tokio::time::sleep;

use crate::escape::{json, shown};
use crate::failure::Failure;
use crate::key::Key;
use crate::output::{closed, print};
use crate::report::with_names;
use crate::servers::Connect;

/// Show the leader of an election
///
/// The leader is the holder of the lock: this prints the note of its hold (`run --note`). Without a note, or with the
/// note "none", it prints its token, and "no token" for a hold of Redisson or a string. Ends with 1 when there is none,
/// or when it is not the one of --is.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    key: Key,

    /// Print each next leader, and "none" while there is none.
    #[arg(short, long)]
    follow: bool,

    /// End with 0 only if the leader has this note: whether it is this host, for example.
    #[arg(long, value_name = "NOTE", conflicts_with = "follow")]
    is: Option<OsString>,

    /// A JSON object for each leader, and null while there is none.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

/// How long after a failure the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let key = args.key.bytes();
    let election = Election::new(&server, key);
    let line = |leader: Option<&Leader>| match (leader, args.json) {
        (Some(leader), true) => json(&object(key, leader)),
        (None, true) => "null".into(),
        (Some(leader), false) => text(leader),
        (None, false) => "none".into(),
    };
    if !args.follow {
        let leader = election.leader().await;
        let leader = leader.map_err(|error| Failure::of(&error, Some(key)))?;
        if leader.is_some() || args.json {
            print([line(leader.as_ref())])?;
        }
        let is_it = |leader: &Leader| match &args.is {
            Some(note) => leader.note == note.as_bytes(),
            None => true,
        };
        return Ok((!leader.as_ref().is_some_and(is_it)).into());
    }
    let mut leaders = election.observe();
    let mut is_told = false;
    let follow = async {
        loop {
            match leaders.next().await {
                Ok(leader) => print([line(leader.as_ref())])?,
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

fn object(key: &[u8], leader: &Leader) -> Value {
    let token = (leader.token > 0).then_some(leader.token);
    let note = Some(&leader.note[..]).filter(|note| !note.is_empty());
    with_names(
        json!({ "token": token }),
        [("key", Some(key)), ("note", note)],
    )
}

fn text(leader: &Leader) -> String {
    match (&leader.note[..], leader.token) {
        (b"" | b"none", 0) => "no token".into(),
        (b"" | b"none", token) => format!("token {token}"),
        (note, _) => shown(note),
    }
}
