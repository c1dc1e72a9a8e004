//! Every command of the server that has a key, inside `LOCK.IF` and without it: the same reply, the same effect, and
//! time in proportion.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use crate::common::cluster::one_node;
use crate::common::{Conn, Reply, TestServer};

/// The keys that each command finds.
const DATA: &[&str] = &[
    "SET s 10",
    "SET other 10",
    "HSET h a 1 b 2",
    "RPUSH l 1 2 a",
    "RPUSH m 3",
    "ZADD z 1 a 2 b",
    "SADD t 1 2 a",
    "SADD u 2 3",
    "XADD x 1-1 a 1",
    "XADD x 2-1 a 2",
    "XGROUP CREATE x g 0",
    "GEOADD g 1 2 here 2 3 there",
    "PFADD p a b",
];

/// Lines for each command, the words of one separated by spaces. `<dump>` is the value that `DUMP s` replies. A command
/// that a new server brings needs a line here; the test names it.
const LINES: &str = "
append s x
bitcount s
bitfield s SET u8 0 7 GET u8 0
bitfield_ro s GET u8 0
bitop AND new s other
bitpos s 1
blmove l m LEFT RIGHT 1
blmpop 1 1 l LEFT
blpop l m 1
brpop l m 1
brpoplpush l m 1
bzmpop 1 1 z MIN
bzpopmax z 1
bzpopmin z 1
copy s new
copy s s DB 1 REPLACE
decr s
decrby s 3
del s h nothing
delex s
delifeq s 10
digest s
dump s
exists s s nothing
expire s 1000
expireat s 33177117420
expiretime s
geoadd g 3 4 far
geodist g here there
geohash g here
geopos g here nothing
georadius g 1 2 500 km STORE new
georadius_ro g 1 2 500 km
georadiusbymember g here 500 km
georadiusbymember_ro g here 500 km
geosearch g FROMMEMBER here BYRADIUS 500 km ASC
geosearchstore new g FROMMEMBER here BYRADIUS 500 km
get s
get h
getbit s 1
getdel s
getex s EXAT 33177117420
getrange s 0 0
getset s x
hdel h a
hexists h a
hexpire h 1000 FIELDS 1 a
hexpireat h 33177117420 FIELDS 1 a
hexpiretime h FIELDS 1 a
hget h a
hgetall h
hgetdel h FIELDS 1 a
hgetex h FIELDS 1 a
hincrby h a 5
hincrbyfloat h a 0.5
hkeys h
hlen h
hmget h a nothing
hmset h a 7
hpersist h FIELDS 1 a
hpexpire h 1000000 FIELDS 1 a
hpexpireat h 33177117420000 FIELDS 1 a
hpexpiretime h FIELDS 1 a
hpttl h FIELDS 1 a
hrandfield h 9
hscan h 0
hset h c 3 a 4
hsetex h FIELDS 1 a 7
hsetnx h a 9
hstrlen h a
httl h FIELDS 1 a
hvals h
incr s
incr l
incrby s 5
incrbyfloat s 0.5
lcs s other
lindex l 0
linsert l BEFORE 2 x
llen l
lmove l m LEFT RIGHT
lmpop 2 nothing l LEFT COUNT 2
lpop l 2
lpos l a
lpush l x y
lpushx l x
lrange l 0 -1
lrem l 0 a
lset l 0 x
ltrim l 1 -1
memory usage s
mget s other nothing h
migrate 127.0.0.1 1 nothing 0 1000
move s 2
mset s 1 new 2
msetex 2 s 1 new 2
msetnx new 1 newer 2
object encoding s
object freq s
object idletime nothing
object refcount l
persist s
pexpire s 1000000
pexpireat s 33177117420000
pexpiretime s
pfadd p c
pfcount p
pfdebug encoding p
pfmerge new p
psetex s 1000000 x
pttl s
rename s new
renamenx s other
restore new 0 <dump>
restore-asking new 0 <dump>
rpop l
rpoplpush l m
rpush l x
rpushx nothing x
sadd t x
scard t
sdiff t u
sdiffstore new t u
set s 1
set s 2 XX GET
set s 3 NX
set l 4 GET
setbit s 1 1
setex s 1000 x
setnx s x
setrange s 1 x
sinter t u
sintercard 2 t u
sinterstore new t u
sismember t a
smembers t
smismember t a b
smove t u a
sort t ALPHA STORE new
sort_ro t ALPHA
spop t 9
srandmember t 9
srem t a b
sscan t 0
strlen s
substr s 0 0
sunion t u
sunionstore new t u
touch s h
ttl s
type s
unlink s h
vadd v VALUES 2 1 2 e
vadd v VALUES 2 2 2 e CAS
vcard v
vdim v
vemb v e
vgetattr v e
~vinfo v
vismember v e
~vlinks v e
vrandmember v
vrange v - + 5
vrem v e
vsetattr v e {\"a\":1}
vsim v VALUES 2 1 2
vsim v ELE e WITHSCORES
xack x g 1-1
xackdel x g IDS 1 1-1
xadd x 3-1 b c
xautoclaim x g c 0 0
xcfgset x IDMP-DURATION 100
xclaim x g c 0 1-1
xdel x 1-1
xdelex x IDS 1 1-1
xgroup create x new $
xgroup createconsumer x g c
xgroup delconsumer x g c
xgroup destroy x g
xgroup setid x g 1-1
xidmprecord x p i 1-1
xinfo consumers x g
xinfo groups x
~xinfo stream x
xlen x
xpending x g
xrange x - +
xread COUNT 1 STREAMS x 0
xreadgroup GROUP g c STREAMS x >
xrevrange x + -
xsetid x 5-1
xtrim x MAXLEN 1
zadd z 3 c
zcard z
zcount z 1 2
zdiff 2 z nothing WITHSCORES
zdiffstore new 2 z nothing
zincrby z 0.5 a
zinter 2 z t
zintercard 2 z t
zinterstore new 2 z t
zlexcount z - +
zmpop 2 nothing z MAX
zmscore z a nothing
zpopmax z
zpopmin z
zrandmember z 9
zrange z 0 -1 WITHSCORES
zrangebylex z - +
zrangebyscore z 1 2
zrangestore new z 0 -1
zrank z b
zrem z a
zremrangebylex z - +
zremrangebyrank z 0 0
zremrangebyscore z 1 1
zrevrange z 0 -1
zrevrangebylex z + -
zrevrangebyscore z 2 1
zrevrank z b
zscan z 0
zscore z a
zunion 2 z t
zunionstore new 2 z t WEIGHTS 2 3
";

/// What `COMMAND` says of a command that has a key and that a script may run.
struct Keyed {
    /// The specification of its first keys.
    spec: Reply,
    /// The number of words of its name.
    words: usize,
}

/// By name, with `|` before a subcommand.
fn keyed_commands(conn: &mut Conn) -> BTreeMap<String, Keyed> {
    fn add(infos: &[Reply], words: usize, found: &mut BTreeMap<String, Keyed>) {
        for info in infos {
            let info = info.list();
            add(&info[9].list(), words + 1, found);
            let is_key = |spec: &&Reply| {
                let flags = spec.field("flags").unwrap().list();
                !flags.iter().any(|flag| flag.text() == "not_key")
            };
            let may_run = !info[2].list().iter().any(|flag| flag.text() == "noscript");
            let name = info[0].text().to_lowercase();
            let is_own = ["lock.", "sem.", "latch."]
                .iter()
                .any(|own| name.starts_with(own));
            if let Some(spec) = info[8]
                .list()
                .iter()
                .find(is_key)
                .filter(|_| may_run && !is_own)
            {
                let spec = spec.clone();
                found.insert(name, Keyed { spec, words });
            }
        }
    }
    let mut found = BTreeMap::new();
    add(&conn.line("COMMAND").list(), 1, &mut found);
    assert!(found.len() > 150, "{}", found.len());
    found
}

/// The lines of each command that the server has, with the mark of those whose replies are compared as errors only.
fn lines_of(commands: &BTreeMap<String, Keyed>) -> BTreeMap<&str, Vec<(bool, &'static str)>> {
    let mut lines: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let (varies, line) = match line.strip_prefix('~') {
            Some(line) => (true, line),
            None => (false, line),
        };
        let words: Vec<_> = line.split(' ').collect();
        let names = [words[0].to_string(), format!("{}|{}", words[0], words[1])];
        let known = names.iter().find_map(|name| commands.get_key_value(name));
        if let Some((name, _)) = known {
            lines.entry(name).or_default().push((varies, line));
        }
    }
    let missing: Vec<_> = commands
        .keys()
        .filter(|name| !lines.contains_key(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "commands of this server without a line in LINES: {missing:?}"
    );
    lines
}

/// How a command is sent.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Plain,
    InMulti,
    InScript,
}

/// A server with the data.
struct Side {
    _server: TestServer,
    conn: Conn,
    dump: Vec<u8>,
    /// `LOCK.IF` and its first words; nothing on the other side.
    before: Vec<String>,
}

impl Side {
    fn new(is_fenced: bool) -> Side {
        let server = TestServer::start();
        let mut conn = server.conn();
        conn.line("SET s 10");
        let dump = conn.line("DUMP s").bytes();
        let token = conn.line("LOCK.ACQUIRE k o PX 600000").int().to_string();
        let before = match is_fenced {
            true => vec!["LOCK.IF".into(), "k".into(), token],
            false => Vec::new(),
        };
        Side {
            _server: server,
            conn,
            dump,
            before,
        }
    }

    fn run(&mut self, way: Way, words: &[Vec<u8>]) -> Reply {
        let before = self.before.iter().map(|word| word.as_bytes().to_vec());
        let words: Vec<_> = before.chain(words.iter().cloned()).collect();
        match way {
            Way::Plain => self.conn.run(&words),
            Way::InMulti => {
                self.conn.line("MULTI");
                self.conn.run(&words);
                let replies = self.conn.line("EXEC");
                match replies.is_error() {
                    true => replies,
                    false => replies.list()[0].clone(),
                }
            }
            Way::InScript => {
                let script = ["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
                let script = script.iter().map(|word| word.as_bytes().to_vec());
                self.conn.run(script.chain(words).collect::<Vec<_>>())
            }
        }
    }

    fn keys(&mut self) -> BTreeSet<String> {
        let keys = self.conn.line("KEYS *").list();
        let names = keys.iter().map(Reply::text);
        names
            .filter(|name| name != "k" && !name.starts_with("redis_lock:"))
            .collect()
    }

    /// What the keys hold, and whether each has an end; then they are as at the beginning.
    fn finish(&mut self) -> Vec<(String, String)> {
        let mut keys = self.keys();
        // A vector set has random links.
        let has_vectors = keys.remove("v");
        let mut digest = vec!["DEBUG".to_string(), "DIGEST-VALUE".into()];
        digest.extend(keys.iter().cloned());
        let digests = self.conn.run(&digest).list();
        let held = keys
            .iter()
            .cloned()
            .zip(digests.iter().map(Reply::text))
            .collect();
        let vectors = has_vectors.then(|| "v".to_string());
        let all: Vec<_> = ["DEL".to_string()]
            .into_iter()
            .chain(keys)
            .chain(vectors)
            .collect();
        self.conn.run(&all);
        self.fill();
        held
    }

    fn fill(&mut self) {
        self.conn.send_lines(DATA);
        for line in DATA {
            let reply = self.conn.recv();
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
    }
}

/// The elements of a set have no order.
fn sorted(value: &Value) -> String {
    let mut parts: Vec<_> = match value {
        Value::Array(parts) | Value::Set(parts) => parts.iter().map(sorted).collect(),
        Value::Map(pairs) => {
            let pair = |(name, value): &(Value, Value)| sorted(name) + &sorted(value);
            pairs.iter().map(pair).collect()
        }
        other => return format!("{other:?}"),
    };
    parts.sort();
    parts.join(", ")
}

#[test]
fn every_command_does_inside_what_it_does_without_the_fence() {
    /// Words for calls that fit by chance, and mostly do not. (No number is a time that ends within the test.)
    const WORDS: [&str; 12] = [
        "s", "h", "l", "z", "t", "x", "new", "1000000", "0", "-1", "a", "LEFT",
    ];
    let (mut fenced, mut plain) = (Side::new(true), Side::new(false));
    let commands = keyed_commands(&mut plain.conn);
    let lines = lines_of(&commands);
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for (resp, way) in [("2", Way::Plain), ("3", Way::InMulti), ("3", Way::InScript)] {
        for side in [&mut fenced, &mut plain] {
            side.conn.run(["HELLO", resp]);
            side.finish();
            if commands.contains_key("vadd") {
                side.conn.line("VADD v VALUES 2 1 2 e");
            }
        }
        for (name, lines) in &lines {
            for (varies, line) in lines {
                let mut words: Vec<Vec<u8>> = line
                    .split(' ')
                    .map(|word| word.as_bytes().to_vec())
                    .collect();
                for word in words.iter_mut().filter(|word| *word == b"<dump>") {
                    word.clone_from(&plain.dump);
                }
                let [inside, outside] = [fenced.run(way, &words), plain.run(way, &words)];
                match varies {
                    true => assert_eq!(
                        inside.is_error(),
                        outside.is_error(),
                        "{way:?} {line}: {inside:?}"
                    ),
                    false => assert_eq!(sorted(&inside.0), sorted(&outside.0), "{way:?} {line}"),
                }
            }
            // Some calls are errors on both sides. (Not of commands that may wait, make an id, or choose at random.)
            let is_left_out = name.starts_with(['b', 'x']) || *name == "spop" || lines[0].0;
            let first = lines[0].1.split(' ').take(commands[*name].words);
            for count in (1..=3).filter(|_| !is_left_out) {
                let others = (0..count).map(|_| WORDS[random(WORDS.len())]);
                let words = first.clone().chain(others);
                let words: Vec<_> = words.map(|word| word.as_bytes().to_vec()).collect();
                let [inside, outside] = [fenced.run(way, &words), plain.run(way, &words)];
                let text = format!("{way:?} {words:?}: {inside:?} {outside:?}");
                assert_eq!(inside.is_error(), outside.is_error(), "{text}");
            }
            assert_eq!(fenced.finish(), plain.finish(), "{way:?} {name}");
            if commands.contains_key("vadd") {
                for side in [&mut fenced, &mut plain] {
                    side.conn.line("VADD v VALUES 2 1 2 e");
                }
            }
        }
    }
}

/// The words of a call of this command with so many keys, if it takes any number.
fn call_with(name: &str, command: &Keyed, count: usize) -> Option<Vec<String>> {
    let number = |reply: Option<Reply>| reply?.maybe_int();
    let part = |reply: Reply, field: &str| {
        let part = reply.field(field)?;
        Some((part.field("type")?.text(), part.field("spec")?))
    };
    let (begin, at) = part(command.spec.clone(), "begin_search")?;
    let (kind, find) = part(command.spec.clone(), "find_keys")?;
    let first = usize::try_from(number(at.field("index"))?)
        .ok()
        .filter(|_| begin == "index")?;
    let mut words: Vec<_> = name.split('|').map(String::from).collect();
    words.resize(first, "1".into());
    let last = match kind.as_str() {
        "range" => number(find.field("lastkey")).filter(|last| *last < 0)?,
        _ => {
            let from = number(find.field("firstkey"))?.unsigned_abs() as usize;
            words.resize(first + from, count.to_string());
            -1
        }
    };
    let step = number(find.field("keystep"))?;
    for key in 0..count {
        words.push(format!("{{k}}{key}"));
        words.extend((1..step).map(|_| "v".to_string()));
    }
    words.extend((last..-1).map(|_| "0".to_string()));
    Some(words)
}

/// The processor time of the server's main thread, in microseconds.
fn cpu_of(server: &TestServer) -> u64 {
    let fields = ["used_cpu_user_main_thread", "used_cpu_sys_main_thread"];
    let seconds = fields.map(|field| server.info_field("cpu", field).parse::<f64>().unwrap());
    (seconds.iter().sum::<f64>() * 1e6) as u64
}

/// A call with four times as many keys takes about four times as long, not sixteen times: of a few tries, because
/// other processes disturb one.
#[test]
fn the_time_of_a_call_grows_as_the_number_of_its_keys() {
    const FEW: usize = 2_000;
    const TIMES: usize = 4;
    for server in [TestServer::start(), one_node(&[])] {
        let mut conn = server.conn();
        let commands = keyed_commands(&mut conn);
        let token = conn.line("LOCK.ACQUIRE k o PX 600000").int().to_string();
        let mut compared = 0;
        for (name, command) in &commands {
            let mut microseconds = |count: usize| {
                let words = call_with(name, command, count)?;
                let before = ["LOCK.IF", "k", &token].map(String::from);
                let start = cpu_of(&server);
                conn.run(before.into_iter().chain(words));
                Some(cpu_of(&server) - start)
            };
            let mut last = (0, 0);
            let is_in_proportion = (0..10).any(|_| {
                let (Some(few), Some(many)) = (microseconds(FEW), microseconds(FEW * TIMES)) else {
                    return true;
                };
                last = (few, many);
                compared += 1;
                many < 2 * TIMES as u64 * few
            });
            assert!(is_in_proportion, "{name}: {last:?} microseconds");
        }
        assert!(compared > 15, "{compared}");
    }
}
