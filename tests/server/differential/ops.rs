//! The operations of a sequence, and their decoding from bytes: a fuzzer's input is a sequence, and so is a seed.

pub const KEYS: usize = 2;
pub const CONNS: usize = 4;
/// Any bytes select an owner.
pub const OWNERS: [&[u8]; 3] = [b"a", b"b\0\r\n", b"c{\xff}"];

pub type Key = usize;
pub type Conn = usize;
pub type Owner = usize;

/// A lease in milliseconds; [`SHORT`] ends within the step, the others outlast the sequence.
pub type Lease = i64;
pub const SHORT: Lease = 1;
const LEASES: [Lease; 4] = [SHORT, 100_000, 600_000, 30_000];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Block {
    No,
    /// One millisecond: a parked request times out within the step.
    Briefly,
    ForEver,
}

/// The token that a command names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Names {
    Nothing,
    Present,
    Wrong,
}

#[derive(Debug, Clone, Copy)]
pub struct Acquire {
    pub key: Key,
    pub owner: Owner,
    pub lease: Lease,
    pub block: Block,
    pub once: bool,
    pub with_holder: bool,
    pub in_multi: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Acquire(Conn, Acquire),
    Release(Conn, Key, Owner, bool, Names),
    Renew(Conn, Key, Owner, Lease, Names),
    Break(Key, Names, bool),
    HangUp(Conn),
    Unblock(Conn, bool),
    Del(Key),
    /// `PEXPIREAT` in the past: deletes the key at once.
    Expire(Key),
    Pexpire(Key, Lease),
    Persist(Key),
    /// Writes a string over any value.
    Set(Key),
    /// Adds a field that makes the hash no lock.
    HsetOther(Key),
    /// Removes the holder's field alone.
    HdelHolder(Key),
    Rename(Key),
    FlushAll,
    RedissonTakes(Key, Owner, Lease),
    RedissonGives(Key, Owner),
}

/// The settings of a sequence, and its steps.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Whether places are kept for longer than any sequence takes, or not at all.
    pub keeps_places: bool,
    pub ops: Vec<Op>,
}

/// Longer sequences find nothing new.
const LONGEST: usize = 60;

impl Sequence {
    pub fn from_bytes(bytes: &[u8]) -> Sequence {
        let mut bytes = bytes.iter().copied();
        let keeps_places = bytes.next().is_some_and(|byte| byte % 2 == 0);
        let ops = std::iter::from_fn(|| op(&mut bytes)).take(LONGEST);
        let ops = ops.collect();
        Sequence { keeps_places, ops }
    }

    pub fn from_seed(seed: u64) -> Sequence {
        let mut state = seed;
        let bytes: Vec<u8> = (0..4 * LONGEST).map(|_| split_mix(&mut state)).collect();
        Sequence::from_bytes(&bytes)
    }
}

/// One byte of the generator splitmix64.
fn split_mix(state: &mut u64) -> u8 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 56) as u8
}

/// Three bytes make a step: the operation, its key, owner and connection, and its options.
fn op(bytes: &mut impl Iterator<Item = u8>) -> Option<Op> {
    let (what, who, how) = (bytes.next()?, bytes.next()?, bytes.next()?);
    let (key, who) = (usize::from(who) % KEYS, usize::from(who) / KEYS);
    let (owner, who) = (who % OWNERS.len(), who / OWNERS.len());
    let conn = who % CONNS;
    let lease = LEASES[usize::from(how) % LEASES.len()];
    let bit = |n: u8| how >> n & 1 == 1;
    let names = match how >> 3 & 3 {
        0 | 1 => Names::Nothing,
        2 => Names::Present,
        _ => Names::Wrong,
    };
    Some(match what % 64 {
        0..=25 => Op::Acquire(
            conn,
            Acquire {
                key,
                owner,
                lease,
                block: match what % 8 {
                    0 | 1 => Block::No,
                    2 => Block::Briefly,
                    _ => Block::ForEver,
                },
                once: bit(2),
                with_holder: bit(3) && lease != SHORT,
                in_multi: how >> 5 == 0,
            },
        ),
        26..=35 => Op::Release(conn, key, owner, bit(0), names),
        36..=39 => Op::Renew(conn, key, owner, lease, names),
        40..=42 => Op::Break(key, names, bit(0)),
        43..=45 => Op::HangUp(conn),
        46 => Op::Unblock(conn, bit(0)),
        47..=48 => Op::Del(key),
        49..=50 => Op::Expire(key),
        51 => Op::Pexpire(key, lease),
        52 => Op::Persist(key),
        53 => Op::Set(key),
        54 => Op::HsetOther(key),
        55..=56 => Op::HdelHolder(key),
        57 => Op::Rename(key),
        58 => Op::FlushAll,
        59..=61 => Op::RedissonTakes(key, owner, lease),
        _ => Op::RedissonGives(key, owner),
    })
}
