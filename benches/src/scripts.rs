//! The peers that lock by scripts, as clients do on a server without this module. The texts are those of the tests,
//! with Redisson's additions since 3.24; for read-write locks and for many locks they are Redisson's own.

use std::io;

use crate::load::{step, Step};
use crate::report::project;
use crate::rlock::{GIVE, RENEW, TAKE};
use crate::server::Server;
use crate::wire::{refuse_error, request, Conn};

/// A release that stores its reply, for a client that lost the reply and repeats it: KEYS: lock, channel, latch; ARGV:
/// message, lease, owner, command to publish with, the latch's time to live.
const GIVE_BY_LATCH: &str = "\
    local answered = redis.call('GET', KEYS[3]) \
    if answered ~= false then return tonumber(answered) end \
    if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end \
    local given = 0 \
    if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then \
      redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
    else \
      given = 1 \
      redis.call('DEL', KEYS[1]) \
      redis.call(ARGV[4], KEYS[2], ARGV[1]) \
    end \
    redis.call('SET', KEYS[3], given, 'PX', ARGV[5]) \
    return given";

const CHANNEL: &str = "redisson_lock__channel:{{k}}";
const LATCH: &str = "redisson_unlock_latch:{{k}}:6a1f0c3d9b2e47588e1c5d7f90ab34e2";

/// The scripts of Redisson 4.7, by their SHA1.
const REDISSON_TAKE: &str = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
const REDISSON_GIVE: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";

/// Those of its read-write lock.
const READ_TAKE: &str = "95553a6ff11176c18e71344e89d116b06fd6f753";
const READ_GIVE: &str = "6e1b10e11ac0a3ed8e902562ecd32ce01b553039";
const WRITE_TAKE: &str = "6306ba3bf1f563b284bed52d305fce615c6664d9";
const WRITE_GIVE: &str = "21f5fb0f8ddfa9be5c3e0c9757c128796add75c6";

const READ_WRITE_CHANNEL: &str = "redisson_rwlock:{{k}}";
const READ_TIMEOUT: &str = "{{k}}:{o}:rwlock_timeout";

/// Loads Redisson's own scripts whose steps are below.
pub fn load_all(server: &Server) -> io::Result<()> {
    let all = [
        REDISSON_TAKE,
        REDISSON_GIVE,
        READ_TAKE,
        READ_GIVE,
        WRITE_TAKE,
        WRITE_GIVE,
    ];
    let mut conn = server.conn()?;
    all.iter().try_for_each(|sha1| load(&mut conn, sha1))
}

/// Loads a script of Redisson's, whose text `make redisson-texts` has fetched.
pub fn load(conn: &mut Conn, sha1: &str) -> io::Result<()> {
    let path = project().join(format!("target/redisson/scripts/{sha1}.lua"));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        io::Error::other(format!("{}: {error}; make redisson-texts", path.display()))
    })?;
    conn.send(&request(&["SCRIPT", "LOAD", &text]))?;
    refuse_error(&conn.reply()?)
}

/// A reader's lock.
pub fn read_take() -> Step {
    let keys = ["EVALSHA", READ_TAKE, "2", "{k}", READ_TIMEOUT];
    step(&[&keys[..], &["30000", "{o}", "{o}:write"]].concat(), "$-1")
}

/// The commands of a reader: lock, unlock (`reply` says whether another reader remains), and the removal of its answer.
pub fn read_pair(reply: &'static str) -> Vec<Step> {
    let keys = [
        "EVALSHA",
        READ_GIVE,
        "5",
        "{k}",
        READ_WRITE_CHANNEL,
        READ_TIMEOUT,
        "{{k}}",
        LATCH,
    ];
    let args = ["0", "{o}", "PUBLISH", "16000"];
    let give = step(&[&keys[..], &args[..]].concat(), reply);
    vec![read_take(), give, step(&["DEL", LATCH], ":1")]
}

/// The commands of a writer.
pub fn write_pair() -> Vec<Step> {
    let take = step(
        &["EVALSHA", WRITE_TAKE, "1", "{k}", "30000", "{o}:write"],
        "$-1",
    );
    let keys = ["EVALSHA", WRITE_GIVE, "3", "{k}", READ_WRITE_CHANNEL, LATCH];
    let args = ["1", "30000", "{o}:write", "PUBLISH", "16000"];
    let give = step(&[&keys[..], &args[..]].concat(), ":1");
    vec![take, give, step(&["DEL", LATCH], ":1")]
}

/// The commands of a lock of several locks: each is locked, then each is unlocked.
pub fn multi_pair(keys: usize) -> Vec<Step> {
    let own = three(REDISSON_TAKE, REDISSON_GIVE);
    let (take, give) = own.split_at(1);
    let each = |steps: &[Step]| -> Vec<Step> {
        let of_key = |key| steps.iter().map(move |step| step.of_key(key));
        (0..keys).flat_map(of_key).collect()
    };
    [each(take), each(give)].concat()
}

/// The scripts with their hashes on one server.
pub struct Scripts {
    take: String,
    give: String,
    renew: String,
    give_by_latch: String,
}

impl Scripts {
    /// Loads them.
    pub fn load(server: &Server) -> io::Result<Scripts> {
        let mut conn = server.conn()?;
        let mut sha = |text: &str| {
            conn.send(&request(&["SCRIPT", "LOAD", text]))?;
            let reply = String::from_utf8_lossy(&conn.reply()?).into_owned();
            let sha = reply.split("\r\n").nth(1).map(String::from);
            sha.ok_or_else(|| io::Error::other(reply))
        };
        Ok(Scripts {
            take: sha(TAKE)?,
            give: sha(GIVE)?,
            renew: sha(RENEW)?,
            give_by_latch: sha(GIVE_BY_LATCH)?,
        })
    }

    /// Acquire and release by EVALSHA.
    pub fn pair(&self) -> Vec<Step> {
        pair("EVALSHA", &self.take, &self.give)
    }

    /// Acquire and release with the scripts' texts sent each time.
    pub fn pair_by_text() -> Vec<Step> {
        pair("EVAL", TAKE, GIVE)
    }

    /// Acquire and release as Redisson sends them since 3.24: three commands, by EVALSHA.
    pub fn redisson(&self) -> Vec<Step> {
        three(&self.take, &self.give_by_latch)
    }

    /// An acquire by EVALSHA: `$-1` if it succeeds.
    pub fn take(&self, reply: &'static str) -> Step {
        take(&self.take, reply)
    }

    /// A renewal by EVALSHA.
    pub fn renew(&self) -> Step {
        step(&["EVALSHA", &self.renew, "1", "{k}", "30000", "{o}"], ":1")
    }
}

fn take(sha: &str, reply: &'static str) -> Step {
    step(&["EVALSHA", sha, "1", "{k}", "30000", "{o}"], reply)
}

fn three(taking: &str, giving: &str) -> Vec<Step> {
    let keys = ["EVALSHA", giving, "3", "{k}", CHANNEL, LATCH];
    let args = ["0", "30000", "{o}", "PUBLISH", "16000"];
    vec![
        take(taking, "$-1"),
        step(&[&keys[..], &args[..]].concat(), ":1"),
        step(&["DEL", LATCH], ":1"),
    ]
}

fn pair(command: &str, take: &str, give: &str) -> Vec<Step> {
    vec![
        step(&[command, take, "1", "{k}", "30000", "{o}"], "$-1"),
        step(&[command, give, "2", "{k}", CHANNEL, "30000", "{o}"], ":1"),
    ]
}
