//! `redis-lock check`: whether locks can be acquired, for probes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::failure::{Failure, UNAVAILABLE};
use crate::output::print;
use crate::servers::Connect;

/// Check that this user can run commands under locks
///
/// For probes: a line for each server that is ready. Tries what `run` needs of the server (to acquire, renew and
/// release a lock, and to wait for it) and changes nothing; the version of the module needs the permission +info. In a
/// cluster the node of the key is asked, with sentinels the primary.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A key that the user may lock; whether it is locked makes no difference.
    #[arg(default_value = "lock:check")]
    key: OsString,

    /// For `run --no-wait`: the permissions that only a wait needs may be missing.
    #[arg(short, long)]
    no_wait: bool,

    /// A replica is ready, too.
    #[arg(long)]
    replica: bool,

    #[command(flatten)]
    connect: Connect,
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    let mut status = 0;
    for server in args.connect.open()? {
        let (key, name) = (args.key.as_bytes(), server.name());
        let ready = server.readiness(key).await;
        let ready = ready.and_then(|mut ready| match ready.wait_error.take() {
            Some(error) if !args.no_wait => Err(error),
            _ => Ok(ready),
        });
        let failure = match ready {
            Ok(ready) if ready.is_primary || args.replica => {
                let role = match ready.is_primary {
                    true => "primary",
                    false => "replica",
                };
                let module = ready.version.map(|version| format!(", module {version}"));
                let module = module.unwrap_or_default();
                print([format!("{name}: ready, {role}{module}")])?;
                continue;
            }
            Ok(_) => Failure::new(UNAVAILABLE, format!("{name}: a replica (READONLY)")),
            Err(error) => Failure::of(&error, Some(key)),
        };
        let told = failure.tell();
        status = if status == 0 { told } else { status };
    }
    Ok(status)
}
