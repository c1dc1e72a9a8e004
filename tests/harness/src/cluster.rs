//! Clusters of real servers: single nodes, three primaries with a replica each, and slots that move the older way, key
//! by key (`MIGRATE`).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{free_port, wait_for, Conn, Reply, TestServer};

/// The prefix of the module's horizon keys in a cluster.
pub const HORIZON: &str = "redis_lock:horizon:";

/// Scenes of many processes run one after the other, whatever the number of parallel tests.
static SCENES: Mutex<()> = Mutex::new(());

/// Waits until no other scene of many processes runs.
pub fn lock_scenes() -> MutexGuard<'static, ()> {
    SCENES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node without slots, and the port of its bus.
pub fn start_node(options: &[&str]) -> (TestServer, u16) {
    let bus = free_port();
    let port = bus.to_string();
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &port];
    // Without this option a master that loses its last slot becomes a replica.
    let steady = ["--cluster-allow-replica-migration", "no"];
    let options = [&cluster[..], &steady, options].concat();
    (TestServer::with(&options), bus)
}

/// A node that serves every slot.
pub fn one_node(options: &[&str]) -> TestServer {
    let (node, _) = start_node(options);
    node.conn().line("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until_served(&node);
    node
}

/// Two primaries: the first serves every slot but the last. (A node without slots has no vote.)
pub fn two_nodes(options: &[&str]) -> (TestServer, TestServer) {
    let ((first, _), (second, bus)) = (start_node(options), start_node(options));
    let (mut here, mut there) = (first.conn(), second.conn());
    here.line("CLUSTER SET-CONFIG-EPOCH 1");
    there.line("CLUSTER SET-CONFIG-EPOCH 2");
    here.line("CLUSTER ADDSLOTSRANGE 0 16382");
    there.line("CLUSTER ADDSLOTS 16383");
    here.line(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", second.port));
    for node in [&first, &second] {
        wait_until_served(node);
    }
    (first, second)
}

/// Waits until every slot is served in this node's view.
pub fn wait_until_served(node: &TestServer) {
    let mut conn = node.conn();
    wait_for("the cluster", || {
        let info = conn.line("CLUSTER INFO").text();
        info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
    });
}

/// The slot of a key.
pub fn slot_of(conn: &mut Conn, key: &str) -> i64 {
    conn.run(["CLUSTER", "KEYSLOT", key]).int()
}

/// The keys that a node has in a slot.
pub fn keys_in(conn: &mut Conn, slot: i64) -> Vec<String> {
    let line = format!("CLUSTER GETKEYSINSLOT {slot} 100");
    let mut keys: Vec<_> = conn.line(&line).list().iter().map(Reply::text).collect();
    keys.sort();
    keys
}

/// The horizons in the slot of a lock.
pub fn horizons_beside(conn: &mut Conn, key: &str) -> Vec<String> {
    let slot = slot_of(conn, key);
    let mut keys = keys_in(conn, slot);
    keys.retain(|key| key.starts_with(HORIZON));
    keys
}

/// The id of a node.
pub fn id_of(node: &TestServer) -> String {
    node.conn().line("CLUSTER MYID").text()
}

/// The newest configuration epoch that a node knows.
fn epoch_of(node: &TestServer) -> Option<String> {
    let info = node.conn().line("CLUSTER INFO").text();
    let epoch = |line: &str| {
        line.strip_prefix("cluster_current_epoch:")
            .map(str::to_owned)
    };
    info.lines().find_map(epoch)
}

/// Marks the slot as migrating at one node and as importing at the other.
pub fn begin_move(source: &TestServer, target: &TestServer, slot: i64) {
    settle(source, target);
    open_move(source, target, slot);
}

/// Waits until each of two nodes has received everything that the other has sent so far.
fn settle(one: &TestServer, other: &TestServer) {
    for (from, to) in [(one, other), (other, one)] {
        let mut conn = from.conn();
        let id = id_of(to);
        let mut link = || {
            let nodes = conn.line("CLUSTER NODES").text();
            let line = nodes.lines().find(|line| line.starts_with(&id));
            let mut words = line.into_iter().flat_map(|line| line.split(' ')).skip(4);
            let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
            (next(), next())
        };
        // A ping sent from now on is answered after everything in transit on this link.
        let mut before = None;
        wait_for("no ping under way", || {
            let (sent, answered) = link();
            before = answered;
            sent == Some(0)
        });
        wait_for("an answer to the next ping", || link().1 > before);
    }
}

/// For Redis 7.0, before slots return to a node that has given them away: makes the node forget its marks of unclaimed
/// slots. `slot` is another slot of their owner, and the third node has an older epoch.
///
/// A packet that the new owner of a slot sent before it was the owner may arrive late; it makes the former owner mark
/// that slot as unclaimed. Taking the slot back with `SETSLOT` leaves the mark (7.2 and newer remove it), and with the
/// mark the node accepts any late claim of the other node, whatever its epoch: it gives the slot back and deletes its
/// keys. The marks go when the owner's claims differ from the node's record, so a wrong record is made.
pub fn forget_late_claims(node: &TestServer, owner: &TestServer, third: &TestServer, slot: i64) {
    settle(node, owner);
    let mut conn = node.conn();
    let line = format!("CLUSTER SETSLOT {slot} NODE {}", id_of(third));
    assert_eq!(conn.line(&line).text(), "OK");
    wait_for("the owner's next claim", || {
        owner_of(&mut conn, slot) == owner.port.into()
    });
}

/// Waits until both nodes know the last epoch: the target takes the next one when the slot arrives. If the source's own
/// epoch were still unknown to it, both nodes would have the same one, the server would resolve that collision with a
/// new epoch for one of them, and a source that still claims the slot would win it back.
fn open_move(source: &TestServer, target: &TestServer, slot: i64) {
    wait_for("one epoch", || epoch_of(source) == epoch_of(target));
    let import = format!("CLUSTER SETSLOT {slot} IMPORTING {}", id_of(source));
    let migrate = format!("CLUSTER SETSLOT {slot} MIGRATING {}", id_of(target));
    assert_eq!(target.conn().line(&import).text(), "OK");
    assert_eq!(source.conn().line(&migrate).text(), "OK");
}

/// Migrates all keys of a migrating slot.
pub fn migrate_keys(source: &TestServer, target: &TestServer, slot: i64) {
    let mut conn = source.conn();
    let port = target.port.to_string();
    loop {
        let keys = keys_in(&mut conn, slot);
        if keys.is_empty() {
            return;
        }
        for key in keys {
            let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "10000"];
            let reply = conn.run(migrate).text();
            // A key may be released or expire meanwhile.
            assert!(reply == "OK" || reply == "NOKEY", "{reply}");
        }
    }
}

/// Assigns the slot to the target.
pub fn end_move(source: &TestServer, target: &TestServer, slot: i64) {
    let line = format!("CLUSTER SETSLOT {slot} NODE {}", id_of(target));
    assert_eq!(target.conn().line(&line).text(), "OK");
    assert_eq!(source.conn().line(&line).text(), "OK");
    wait_until_known(target, slot);
}

/// Waits until every running node knows the owner of this slot.
///
/// The next move may give the former owner a newer epoch than the new owner's. A node that knows that epoch but not
/// this move would take the new owner's claim for an old one and reply that the slot belongs to the former owner, and
/// the new owner would believe it.
fn wait_until_known(owner: &TestServer, slot: i64) {
    let nodes = owner.conn().line("CLUSTER NODES").text();
    let port = |line: &str| -> Option<u16> {
        let address = line.split(' ').nth(1)?.split('@').next()?;
        address.rsplit(':').next()?.parse().ok()
    };
    for port in nodes.lines().filter_map(port) {
        wait_for("one owner of the slot", || {
            Conn::try_open(port)
                .is_none_or(|mut conn| owner_of(&mut conn, slot) == owner.port.into())
        });
    }
}

/// The port of the node that has this slot, as far as the asked node knows; 0 for none.
fn owner_of(conn: &mut Conn, slot: i64) -> i64 {
    let ranges = conn.line("CLUSTER SLOTS").list();
    let has_it = |range: &&Vec<Reply>| (range[0].int()..=range[1].int()).contains(&slot);
    let ranges: Vec<_> = ranges.iter().map(Reply::list).collect();
    let range = ranges.iter().find(has_it);
    range.map_or(0, |range| range[2].list()[1].int())
}

/// Moves a slot and all its keys the older way.
pub fn move_slot(source: &TestServer, target: &TestServer, slot: i64) {
    move_slots(source, target, &[slot], |_| ());
}

/// Moves slots with all their keys, one after the other; calls the function when one has arrived.
pub fn move_slots(
    source: &TestServer,
    target: &TestServer,
    slots: &[i64],
    mut has_arrived: impl FnMut(i64),
) {
    settle(source, target);
    for slot in slots {
        open_move(source, target, *slot);
        migrate_keys(source, target, *slot);
        end_move(source, target, *slot);
        has_arrived(*slot);
    }
}

/// Three primaries and three replicas. Only one such cluster runs at a time.
pub struct Cluster {
    /// Nodes 0 to 2 start as primaries, 3 to 5 as their replicas in this order.
    pub nodes: Vec<TestServer>,
    _scene: MutexGuard<'static, ()>,
}

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;

impl Cluster {
    /// A cluster that notices a dead node after this many milliseconds, with further options.
    pub fn with(node_timeout_ms: u32, options: &[&str]) -> Cluster {
        let guard = lock_scenes();
        let timeout = node_timeout_ms.to_string();
        let mine = [
            "--cluster-node-timeout",
            &timeout,
            "--cluster-replica-validity-factor",
            "0",
            "--cluster-require-full-coverage",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let options = [&mine[..], options].concat();
        let started: Vec<_> = (0..NODES).map(|_| start_node(&options)).collect();
        for (i, (node, _)) in started.iter().enumerate() {
            let mut conn = node.conn();
            conn.line(&format!("CLUSTER SET-CONFIG-EPOCH {}", i + 1));
            for (other, bus) in &started[i + 1..] {
                conn.line(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port));
            }
        }
        let nodes: Vec<_> = started.into_iter().map(|(node, _)| node).collect();
        for (i, node) in nodes[..PRIMARIES].iter().enumerate() {
            let of = |i: usize| 16_384 * i / PRIMARIES;
            let slots = format!("CLUSTER ADDSLOTSRANGE {} {}", of(i), of(i + 1) - 1);
            assert_eq!(node.conn().line(&slots).text(), "OK");
        }
        let cluster = Cluster {
            nodes,
            _scene: guard,
        };
        for i in 0..PRIMARIES {
            let line = format!("CLUSTER REPLICATE {}", id_of(&cluster.nodes[i]));
            let mut conn = cluster.nodes[i + PRIMARIES].conn();
            wait_for("a primary that its replica knows", || {
                !conn.line(&line).is_error()
            });
        }
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until all nodes agree on three primaries that serve every slot and on their replicas, and every replica
    /// has its primary's data.
    pub fn wait_until_whole(&self) {
        for node in &self.nodes {
            wait_until_served(node);
        }
        wait_for("nodes that agree", || {
            let views: Vec<_> = self.nodes.iter().map(roles_seen_by).collect();
            let count = |role: &str| views[0].iter().filter(|line| line.contains(role)).count();
            count(" master") == PRIMARIES
                && count(" slave") == PRIMARIES
                && views.iter().all(|view| *view == views[0])
        });
        for node in &self.nodes {
            wait_for("shards of two nodes each", || {
                shards_seen_by(node) == [2; PRIMARIES]
            });
            // A node that is killed does not start again if its disk has an older view of the shards.
            node.conn().run(["CLUSTER", "SAVECONFIG"]);
        }
        for node in &self.nodes {
            wait_for("a replica with data", || {
                node.info_field("replication", "role") == "master"
                    || node.info_field("replication", "master_link_status") == "up"
            });
        }
    }

    /// The primary that serves a key according to these nodes, which must agree.
    pub fn owner_of(&self, key: &str) -> &TestServer {
        let mut found = None;
        wait_for("an owner of the key", || {
            found = self.nodes.iter().find(|node| owns(node, key));
            found.is_some()
        });
        found.expect("an owner")
    }

    /// A key of this node, with a hash tag made from the stem: `{stem7}`.
    pub fn key_of(&self, node: usize, stem: &str) -> String {
        let mut conn = self.nodes[node].conn();
        (0..1_000)
            .map(|i| format!("{{{stem}{i}}}"))
            .find(|key| !conn.run(["LOCK.INFO", key]).is_error())
            .expect("a key of the node")
    }

    /// Waits until the node is a primary.
    pub fn wait_for_primary(&self, node: usize) {
        wait_for("a promotion", || {
            self.nodes[node].info_field("replication", "role") == "master"
        });
    }
}

/// The number of nodes of each shard in this node's view. (A shard is an array: `slots`, ranges, `nodes`, nodes.)
fn shards_seen_by(node: &TestServer) -> Vec<usize> {
    let shards = node.conn().run(["CLUSTER", "SHARDS"]).list();
    shards
        .iter()
        .map(|shard| shard.list()[3].list().len())
        .collect()
}

/// The nodes in this node's view: id, role (`master`, `slave`, each possibly followed by `,fail`), the primary of a
/// replica, and the slots.
fn roles_seen_by(node: &TestServer) -> Vec<String> {
    let nodes = node.conn().line("CLUSTER NODES").text();
    let role = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let role = words[2].trim_start_matches("myself,");
        format!("{} {role} {} {}", words[0], words[3], words[8..].join(" "))
    };
    let mut roles: Vec<_> = nodes.lines().map(role).collect();
    roles.sort();
    roles
}

/// Whether this node serves the key as its primary.
fn owns(node: &TestServer, key: &str) -> bool {
    Conn::try_open(node.port).is_some_and(|mut conn| !conn.run(["LOCK.INFO", key]).is_error())
}

/// Whether the server can move slots atomically.
pub fn moves_atomically(node: &TestServer) -> bool {
    let (since_valkey, since_redis) = ((9, 0, 0), (8, 4, 0));
    let since = if node.is_valkey() {
        since_valkey
    } else {
        since_redis
    };
    node.version() >= since
}

/// A slot that moves atomically: Valkey starts the move at the source, Redis at the target.
pub struct AtomicMove {
    source: Conn,
    target: Conn,
    target_id: String,
    slot: i64,
    is_valkey: bool,
}

impl AtomicMove {
    /// Starts the move.
    pub fn begin(source: &TestServer, target: &TestServer, slot: i64) -> AtomicMove {
        let mut moving = AtomicMove {
            source: source.conn(),
            target: target.conn(),
            target_id: id_of(target),
            slot,
            is_valkey: source.is_valkey(),
        };
        let id = &moving.target_id;
        let reply = if moving.is_valkey {
            let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}");
            moving.source.line(&line)
        } else {
            let line = format!("CLUSTER MIGRATION IMPORT {slot} {slot}");
            moving.target.line(&line)
        };
        assert!(!reply.is_error(), "{}", reply.error());
        moving
    }

    /// Cancels it.
    pub fn cancel(&mut self) {
        let reply = self.try_cancel();
        assert!(!reply.is_error(), "{}", reply.error());
    }

    /// The same; an error if it has ended.
    fn try_cancel(&mut self) -> Reply {
        match self.is_valkey {
            true => self.source.line("CLUSTER CANCELSLOTMIGRATIONS"),
            false => self.target.line("CLUSTER MIGRATION CANCEL ALL"),
        }
    }

    /// Whether the source is writing the snapshot.
    pub fn is_snapshotting(&mut self) -> bool {
        ["snapshotting", "send-bulk-and-stream"].contains(&self.state().as_str())
    }

    /// Whether the move has ended, successfully or not.
    pub fn is_over(&mut self) -> bool {
        ENDS.contains(&self.state().as_str())
    }

    /// The progress at the source: the state of its newest job, in the server's words.
    fn state(&mut self) -> String {
        state_of(&mut self.source, self.is_valkey).unwrap_or_default()
    }

    /// Waits until the slot has moved; cancels a move that takes longer than this. (Under constant writes the target
    /// may never catch up, and the server may give up by itself.) Returns whether the slot has moved.
    pub fn wait_or_cancel(mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.has_moved() {
            if start.elapsed() > limit {
                self.try_cancel();
                wait_for("the end of the move", || self.is_idle());
                return self.has_moved();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Waits until both nodes say that the slot is the target's.
    pub fn wait_until_done(mut self) {
        wait_for("the slot at its new node", || self.has_moved());
    }

    fn has_moved(&mut self) -> bool {
        let (slot, target_id) = (self.slot, &self.target_id);
        [&mut self.source, &mut self.target]
            .into_iter()
            .all(|node| {
                let slots = node.line("CLUSTER SLOTS").list();
                slots.iter().any(|range| {
                    let range = range.list();
                    (range[0].int()..=range[1].int()).contains(&slot)
                        && range[2].list()[2].text() == *target_id
                })
            })
    }

    /// Whether neither node is busy with a move.
    fn is_idle(&mut self) -> bool {
        let is_valkey = self.is_valkey;
        [&mut self.source, &mut self.target]
            .into_iter()
            .all(|node| {
                state_of(node, is_valkey).is_none_or(|state| ENDS.contains(&state.as_str()))
            })
    }
}

/// The states of a move that has ended, in the words of the servers.
const ENDS: [&str; 5] = ["success", "cancelled", "failed", "completed", "canceled"];

/// The state of a node's newest move; `None` if there never was one.
fn state_of(node: &mut Conn, is_valkey: bool) -> Option<String> {
    let jobs = node.line(match is_valkey {
        true => "CLUSTER GETSLOTMIGRATIONS",
        false => "CLUSTER MIGRATION STATUS ALL",
    });
    Some(jobs.list().first()?.field("state")?.text())
}
