//! The scripts: their texts from Redisson's jars, and the meaning of their keys and arguments.

use std::path::{Path, PathBuf};

/// The meaning of a key or an argument of a script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    Name,
    Channel,
    ReadWriteChannel,
    Latch,
    Token,
    /// The prefix of one reader's timeouts.
    ReaderPrefix,
    /// The prefix of all readers' timeouts.
    AllReadersPrefix,
    Lease,
    Owner,
    Writer,
    Message,
    Publish,
    LatchLease,
}

/// The keys and arguments as Redisson sends them.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    Fixed(&'static [Role], &'static [Role]),
    /// A lease, then for each lock a name and an owner.
    Batch,
    /// A lease, then for each lock a name, its prefix, and an owner.
    ReadBatch,
    /// A lease, then for each lock a name, its prefix, a number of owners and the owners.
    ReadBatchOfMany,
}

#[derive(Debug, Clone)]
pub struct Script {
    pub name: String,
    pub sha1: String,
    pub text: Vec<u8>,
    pub shape: Shape,
}

#[derive(Clone)]
pub struct Scripts(pub Vec<Script>);

impl Scripts {
    /// All scripts of the table; `LOCK_SCRIPTS` restricts them to those whose names contain it.
    ///
    /// # Panics
    /// When the texts have not been fetched.
    pub fn read() -> Scripts {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let default = || root.join("target/redisson/scripts");
        let dir = std::env::var_os("LOCK_REDISSON_TEXTS").map_or_else(default, PathBuf::from);
        let table = include_str!("scripts.txt").lines();
        let only = std::env::var("LOCK_SCRIPTS").unwrap_or_default();
        let lines = table.filter(|line| !line.starts_with('#') && line.contains(&only));
        Scripts(lines.map(|line| read_script(line, &dir)).collect())
    }
}

fn read_script(line: &str, dir: &Path) -> Script {
    let mut words = line.split_whitespace().map(String::from);
    let (name, sha1) = (words.next().expect("a name"), words.next().expect("a SHA1"));
    let file = dir.join(&sha1).with_extension("lua");
    let text = std::fs::read(&file)
        .unwrap_or_else(|error| panic!("{}: {error}: make redisson-texts", file.display()));
    let shape = shape_of(&name);
    Script {
        name,
        sha1,
        text,
        shape,
    }
}

fn shape_of(script: &str) -> Shape {
    use Role::*;
    use Shape::*;
    match script {
        "rlock-acquire-1" | "rlock-acquire-2" | "rlock-acquire-3" => {
            Fixed(&[Name], &[Lease, Owner])
        }
        "rlock-unlock-1" | "rlock-unlock-2" => Fixed(&[Name, Channel], &[Message, Lease, Owner]),
        "rlock-unlock-3" => Fixed(&[Name, Channel], &[Message, Lease, Owner, Publish]),
        "rlock-unlock-4" => Fixed(
            &[Name, Channel, Latch],
            &[Message, Lease, Owner, Publish, LatchLease],
        ),
        "rlock-renew-1" => Fixed(&[Name], &[Lease, Owner]),
        "rlock-renew-2" => Batch,
        "rlock-force-1" => Fixed(&[Name, Channel], &[Message]),
        "rlock-force-2" => Fixed(&[Name, Channel], &[Message, Publish]),
        "fenced-acquire" | "fenced-acquire-token" => Fixed(&[Name, Token], &[Lease, Owner]),
        "spin-unlock-1" => Fixed(&[Name], &[Lease, Owner]),
        "spin-unlock-2" => Fixed(&[Name, Latch], &[Lease, Owner, LatchLease]),
        "spin-force" | "read-is-locked" => Fixed(&[Name], &[]),
        "read-acquire-1" | "read-acquire-2" => {
            Fixed(&[Name, ReaderPrefix], &[Lease, Owner, Writer])
        }
        "write-acquire" => Fixed(&[Name], &[Lease, Writer]),
        "read-unlock-1" => Fixed(
            &[Name, ReadWriteChannel, ReaderPrefix, AllReadersPrefix],
            &[Message, Owner],
        ),
        "read-unlock-2" => Fixed(
            &[Name, ReadWriteChannel, ReaderPrefix, AllReadersPrefix],
            &[Message, Owner, Publish],
        ),
        "read-unlock-3" | "read-unlock-4" => Fixed(
            &[
                Name,
                ReadWriteChannel,
                ReaderPrefix,
                AllReadersPrefix,
                Latch,
            ],
            &[Message, Owner, Publish, LatchLease],
        ),
        "write-unlock-1" => Fixed(&[Name, ReadWriteChannel], &[Message, Lease, Writer]),
        "write-unlock-2" => Fixed(
            &[Name, ReadWriteChannel],
            &[Message, Lease, Writer, Publish],
        ),
        "write-unlock-3" | "write-unlock-4" => Fixed(
            &[Name, ReadWriteChannel, Latch],
            &[Message, Lease, Writer, Publish, LatchLease],
        ),
        "read-force-1" | "write-force-1" => Fixed(&[Name, ReadWriteChannel], &[Message]),
        "read-force-2" | "write-force-2" => Fixed(&[Name, ReadWriteChannel], &[Message, Publish]),
        "read-renew-1" => Fixed(&[Name, AllReadersPrefix], &[Lease, Owner]),
        "read-renew-2" | "read-renew-3" => ReadBatch,
        "read-renew-4" => ReadBatchOfMany,
        other => panic!("what are the arguments of {other}?"),
    }
}

impl Script {
    /// Whether the script is one of read-write locks.
    pub fn is_read_write(&self) -> bool {
        self.name.starts_with("read-") || self.name.starts_with("write-")
    }
}
