//! Random calls of a script: mostly as Redisson sends them, often with one unusual part.

use crate::case::{prefixed, suffixed};
use crate::random::Random;
use crate::scripts::{Role, Script, Scripts, Shape};
use crate::states::{LATCH, OWNERS};
use crate::wire::{printable, Bytes, Words};

pub const CHANNEL: &str = "redisson_lock__channel";
pub const READ_WRITE_CHANNEL: &str = "redisson_rwlock";
pub const TOKEN: &str = "redisson_lock_token";

#[derive(Debug, Clone)]
pub struct Call {
    /// Which of the scripts.
    pub script: usize,
    how: How,
    /// The number of keys, the keys, the arguments.
    pub rest: Words,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Text(&'static str),
    Hash(&'static str),
    HashInUpperCase,
}

const HOW: [How; 9] = [
    How::Text("EVAL"),
    How::Text("EVAL"),
    How::Hash("EVALSHA"),
    How::Hash("EVALSHA"),
    How::Text("eval"),
    How::Hash("eValSha"),
    How::HashInUpperCase,
    How::Text("EVAL_RO"),
    How::Hash("EVALSHA_RO"),
];

const LEASES: [&str; 18] = [
    "30000",
    "1",
    "600000",
    "0",
    "-1",
    "10000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "7423372036854775807",
    "-9223372036854775808",
    "abc",
    "",
    "1.5",
    " 30",
    "030",
    "+5",
    "1e3",
    "0x10",
];
const OTHER_OWNERS: [&[u8]; 8] = [
    b"u:2",
    b"u:3",
    b"",
    b"mode",
    b"#token",
    b"\0\r\n{}",
    b"longer than the sixty-four bytes that a field of a compact hash may have: u:1",
    b"u:1:write",
];
const MESSAGES: [&[u8]; 4] = [b"0", b"1", b"", b"\0\xff"];
const PUBLISH: [&str; 8] = [
    "PUBLISH", "SPUBLISH", "publish", "spublish", "PUBLISHX", "SET", "DEL", "",
];
const LATCH_LEASES: [&str; 9] = [
    "13500",
    "1",
    "16000",
    "0",
    "-1",
    "abc",
    "",
    "1.5",
    "9223372036854775807",
];
const KEY_COUNTS: [&str; 9] = ["0", "1", "2", "3", "9", "-1", "abc", " 1", "01"];
const OWNER_COUNTS: [&str; 6] = ["1", "2", "0", "-1", "abc", "1.5"];

/// A call of a script on this lock, or one that differs slightly.
pub fn of(random: &mut Random, script: usize, scripts: &Scripts, name: &[u8]) -> Call {
    let (mut keys, mut arguments) = match scripts.0[script].shape {
        Shape::Fixed(keys, arguments) => {
            let mut values = |roles: &[Role]| -> Words {
                let value = |role: &Role| value_of(random, *role, name, script, scripts);
                roles.iter().map(value).collect()
            };
            (values(keys), values(arguments))
        }
        shape => batch(random, shape, name),
    };
    let mut count = keys.len().to_string();
    if random.percent(15) {
        bend(random, &mut keys, &mut arguments, &mut count);
    }
    let rest = [vec![count.into_bytes()], keys, arguments].concat();
    let how = random.pick(&HOW);
    Call { script, how, rest }
}

/// Removes or adds a word, or changes the number of keys.
fn bend(random: &mut Random, keys: &mut Words, arguments: &mut Words, count: &mut String) {
    match random.below(6) {
        0 => drop(arguments.pop()),
        1 => arguments.push(b"more".to_vec()),
        2 => {
            keys.pop();
            *count = keys.len().to_string();
        }
        3 => {
            keys.push(b"more".to_vec());
            *count = keys.len().to_string();
        }
        4 => *count = random.pick(&KEY_COUNTS).to_string(),
        // Replaces a key by another one, possibly the same.
        _ => {
            if let Some(place) = keys.len().checked_sub(1) {
                keys[place] = random.pick(&[&b"k"[..], b"elsewhere", b""]).to_vec();
            }
        }
    }
}

fn value_of(
    random: &mut Random,
    role: Role,
    name: &[u8],
    script: usize,
    scripts: &Scripts,
) -> Bytes {
    match role {
        Role::Name => name.to_vec(),
        Role::Channel => prefixed(CHANNEL, name),
        Role::ReadWriteChannel => prefixed(READ_WRITE_CHANNEL, name),
        Role::Latch => [&prefixed(LATCH, name)[..], b":0123456789abcdef"].concat(),
        Role::Token => prefixed(TOKEN, name),
        Role::ReaderPrefix => suffixed(name, "u:1:rwlock_timeout"),
        // Redisson sends the text before the colon.
        Role::AllReadersPrefix => {
            let mut prefix = suffixed(name, "");
            prefix.pop();
            prefix
        }
        Role::Lease => random.mostly(70, &LEASES).as_bytes().to_vec(),
        Role::Owner => owner(random),
        Role::Writer if random.percent(80) => b"u:1:write".to_vec(),
        Role::Writer => owner(random),
        Role::Message => {
            let usual: &[u8] = match scripts.0[script].name.starts_with("write-") {
                true => b"1",
                false => b"0",
            };
            let odd = random.percent(10).then(|| random.pick(&MESSAGES));
            odd.unwrap_or(usual).to_vec()
        }
        Role::Publish => random.mostly(60, &PUBLISH).as_bytes().to_vec(),
        Role::LatchLease => random.mostly(80, &LATCH_LEASES).as_bytes().to_vec(),
    }
}

fn owner(random: &mut Random) -> Bytes {
    if random.percent(75) {
        OWNERS[0].to_vec()
    } else {
        random.pick(&OTHER_OWNERS).to_vec()
    }
}

/// The renewal of some locks; one of them may occur twice, and others do not exist.
fn batch(random: &mut Random, shape: Shape, name: &[u8]) -> (Words, Words) {
    let lease = random.mostly(80, &LEASES).as_bytes().to_vec();
    let (mut keys, mut arguments) = (Words::new(), vec![lease]);
    for _ in 0..random.mostly(50, &[1, 2, 3, 0]) {
        let lock = random.mostly(70, &[name, b"k", b"{a}k", b"nobody's"]);
        keys.push(lock.to_vec());
        match shape {
            Shape::Fixed(..) | Shape::Batch => {}
            Shape::ReadBatch | Shape::ReadBatchOfMany => {
                let mut prefix = suffixed(lock, "");
                prefix.pop();
                keys.push(prefix);
            }
        }
        let mut owners = 1;
        if matches!(shape, Shape::ReadBatchOfMany) {
            let count = random.mostly(70, &OWNER_COUNTS);
            owners = count.parse().unwrap_or(1).max(0);
            arguments.push(count.as_bytes().to_vec());
        }
        arguments.extend((0..owners).map(|_| owner(random)));
    }
    (keys, arguments)
}

impl Call {
    /// The command, with the text or the SHA1 of the script in this table.
    pub fn words(&self, scripts: &Scripts) -> Words {
        let script = &scripts.0[self.script];
        let head = match self.how {
            How::Text(command) => [command.into(), script.text.clone()],
            How::Hash(command) => [command.into(), script.sha1.clone().into()],
            How::HashInUpperCase => ["EVALSHA".into(), script.sha1.to_uppercase().into()],
        };
        [head.to_vec(), self.rest.clone()].concat()
    }

    /// The call for a reader, without the text.
    pub fn describe(&self, script: &Script) -> String {
        let rest: Vec<String> = self.rest.iter().map(|word| printable(word)).collect();
        format!("{:?} <{}> {:?}", self.how, script.name, rest)
    }
}
