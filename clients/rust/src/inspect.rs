//! Operator requests: the state of locks, their listing, and breaking a lock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redis::{cmd, from_redis_value, Cmd, ConnectionInfo, Value};

use crate::error::{Error, Result};
use crate::info::{lock_info, Holder, LockInfo};
use crate::net::address::{address_like, name_of};
use crate::net::caller::Caller;
use crate::net::command;
use crate::net::reply::{bytes, line, list, number, text};
use crate::net::server::Server;
use crate::runtime::within;
use crate::semaphore::Semaphore;
use crate::trace::{shown, Text};

/// The selection of locks to list.
///
/// ```
/// use redis_lock_client::Search;
///
/// let jobs = Search::held().matching("jobs:*").owner("worker-7");
/// let contended = Search::waited();
/// ```
#[derive(Clone)]
pub struct Search {
    of: Sought,
    pattern: Option<Vec<u8>>,
    owner: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sought {
    Held,
    Waited,
    Semaphores,
}

impl Search {
    /// Locks that are held.
    pub fn held() -> Search {
        Search {
            of: Sought::Held,
            pattern: None,
            owner: None,
        }
    }

    /// Locks that have waiters, held or not.
    pub fn waited() -> Search {
        Search {
            of: Sought::Waited,
            ..Search::held()
        }
    }

    /// Semaphores of which a permit is held, or was. The module does not list them, so the keys beside them are found
    /// with `SCAN`.
    pub fn semaphores() -> Search {
        Search {
            of: Sought::Semaphores,
            ..Search::held()
        }
    }

    /// Only keys that match, by the rules of `KEYS`.
    #[must_use]
    pub fn matching(self, pattern: impl AsRef<[u8]>) -> Search {
        let pattern = Some(pattern.as_ref().to_vec());
        Search { pattern, ..self }
    }

    /// Only locks that this owner holds.
    #[must_use]
    pub fn owner(self, owner: impl AsRef<[u8]>) -> Search {
        let owner = Some(owner.as_ref().to_vec());
        Search { owner, ..self }
    }
}

/// The grant of a lock that is to be broken.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{BreakTarget, BreakWaiters};
///
/// // Not a grant that was made meanwhile.
/// let grant = BreakTarget::Token(1_795_215_970_798_000);
/// let was_held = server.break_lock("invoices:42", grant, BreakWaiters::Keep).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakTarget {
    /// Any present grant.
    Any,
    /// The grant with this fencing token.
    Token(u64),
}

/// The effect of breaking a lock on its waiters.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{BreakTarget, BreakWaiters};
///
/// // All waits end, and the lock is free.
/// server.break_lock("invoices:42", BreakTarget::Any, BreakWaiters::Purge).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakWaiters {
    /// The first waiter gets the lock.
    Keep,
    /// All waits end without the lock.
    Purge,
}

shown! { Search, it, of = it.of, pattern = it.pattern.as_deref().map(Text) }

/// What a server that can serve locks says of itself, as [`Server::readiness`] returns it.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// let ready = server.readiness("invoices:42").await?;
/// println!("primary: {}, module {:?}", ready.is_primary, ready.version);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Readiness {
    /// Whether the server takes writes. A replica answers requests for locks with an error.
    pub is_primary: bool,
    /// The version of the module; none if the user may not run `INFO`.
    pub version: Option<String>,
    /// Why a request would fail that has to wait, such as a missing permission; none if it would wait.
    pub wait_error: Option<Error>,
}

/// The number of keys that a step of a scan examines.
const KEYS_PER_STEP: u64 = 1_000;

impl Server {
    /// The holders of this lock and at most the first `max_waiters` of its waiters; None without holders and waiters.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn info(&self, key: impl AsRef<[u8]>, max_waiters: u64) -> Result<Option<LockInfo>> {
        let command = command::info(key.as_ref(), max_waiters);
        let reply = self.call(key.as_ref(), &command).await?;
        Ok((reply != Value::Nil).then(|| lock_info(&reply)))
    }

    /// Breaks a lock, whichever owner holds it. False when it was not held.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn break_lock(
        &self,
        key: impl AsRef<[u8]>,
        grant: BreakTarget,
        waiters: BreakWaiters,
    ) -> Result<bool> {
        let mut command = cmd("LOCK.BREAK");
        command.arg(key.as_ref());
        if let BreakTarget::Token(token) = grant {
            command.arg("TOKEN").arg(token);
        }
        if waiters == BreakWaiters::Purge {
            command.arg("PURGE");
        }
        let reply = self.call(key.as_ref(), &command).await?;
        Ok(reply == Value::Int(1))
    }

    /// Lists the locks of the database step by step, in a cluster node by node.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn scan(&self, search: Search) -> Result<Scan> {
        Ok(Scan {
            server: self.clone(),
            nodes: within(self.nodes()).await?.into(),
            cursor: b"0".to_vec(),
            search,
        })
    }

    /// The module's counters in `INFO lock`, summed over the nodes of a cluster, for all clients of the server. Those
    /// of this process are in [`statistics`](Server::statistics).
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn module_counters(&self) -> Result<BTreeMap<String, u64>> {
        let mut counters = BTreeMap::new();
        for info in self.infos("lock").await? {
            for line in info.lines() {
                let field = line.strip_prefix("lock_").and_then(|l| l.split_once(':'));
                let Some((name, value)) = field else { continue };
                let value: u64 = value.trim().parse().unwrap_or_default();
                *counters.entry(name.to_string()).or_default() += value;
            }
        }
        Ok(counters)
    }

    /// Whether this user can acquire, renew and release this lock here, held or not, and whether it can wait for it.
    /// The requests change nothing: their owner is empty, which the module refuses after the checks of the server
    /// (user, key, node, memory).
    ///
    /// # Errors
    /// When the server cannot be reached, has no module, refuses, or is in its startup delay.
    pub async fn readiness(&self, key: impl AsRef<[u8]>) -> Result<Readiness> {
        let mut caller = Caller::shared(self, key.as_ref());
        let mut is_primary = true;
        for command in ["LOCK.ACQUIRE", "LOCK.RENEW", "LOCK.RELEASE"] {
            let request = cmd(command).arg(&[key.as_ref(), b""]).take();
            match within(caller.call(&request, self.patience())).await {
                Err(Error::Refused { code, .. }) if code == "READONLY" => is_primary = false,
                Err(Error::Refused { text, .. }) if text.contains("owner is empty") => {}
                other => drop(other?),
            }
        }
        let node = match &caller.answered_by {
            Some(node) => node.clone(),
            None => within(self.node_of(None, 0)).await?,
        };
        let info = match within(self.ask(&node, cmd("INFO").arg("modules"))).await {
            Err(Error::Refused { code, .. }) if code == "NOPERM" => String::new(),
            reply => text(&reply?),
        };
        let after = |mark: &str| {
            let (_, rest) = info.split_once(mark)?;
            let digits = rest.split(|char: char| !char.is_ascii_digit()).next();
            digits?.parse::<u64>().ok()
        };
        if let Some(left @ 1..) = after("lock_startup_delay_left_ms:") {
            let left = Duration::from_millis(left);
            let what = format!("grants nothing for {left:?} more after its start");
            return Err(Error::connection(&name_of(&node), what));
        }
        let version = after("module:name=lock,ver=");
        let ticket = self.inner.tickets.open(key.as_ref());
        Ok(Readiness {
            wait_error: within(ticket.try_channel(self, &node)).await.err(),
            is_primary,
            version: version.map(|n| format!("{}.{}.{}", n / 10_000, n / 100 % 100, n % 100)),
        })
    }

    /// What tells this server's process, or that of each primary of a cluster, from others: `run_id` in `INFO server`.
    /// Two URLs may name one server.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn run_ids(&self) -> Result<Vec<String>> {
        let infos = self.infos("server").await?;
        let ids = infos.iter().filter_map(|info| line(info, "run_id:"));
        Ok(ids.map(str::to_string).collect())
    }

    /// A section of `INFO` of each node.
    async fn infos(&self, section: &str) -> Result<Vec<String>> {
        within(async {
            let mut infos = Vec::new();
            for node in self.nodes().await? {
                let reply = self.ask(&node, cmd("INFO").arg(section)).await?;
                infos.push(text(&reply));
            }
            Ok(infos)
        })
        .await
    }

    /// The server, or the primaries of a cluster.
    async fn nodes(&self) -> Result<Vec<ConnectionInfo>> {
        let seed = self.node_of(None, 0).await?;
        if !self.is_cluster() {
            return Ok(vec![seed]);
        }
        let reply = self.ask(&seed, cmd("CLUSTER").arg("SLOTS")).await?;
        let mut nodes: Vec<ConnectionInfo> = Vec::new();
        for range in list(&reply) {
            let Some([host, port, ..]) = list(range).get(2).map(list) else {
                continue;
            };
            let (host, port) = (text(host), number(port).unwrap_or_default());
            let port = u16::try_from(port).map_err(|_| Error::reply(self.name()))?;
            let address = address_like(seed.addr(), &host, port);
            if nodes.iter().all(|node| node.addr() != &address) {
                nodes.push(seed.clone().set_addr(address));
            }
        }
        Ok(nodes)
    }

    /// Asks a node on its shared connection.
    pub(crate) async fn ask(&self, node: &ConnectionInfo, command: &Cmd) -> Result<Value> {
        let (mut connection, place) = self.shared(node).await?;
        let name = name_of(node);
        let asked = connection.ask(command, &name, self.patience()).await;
        if matches!(asked, Err(Error::Connection { .. })) {
            self.forget_shared(node, &place);
        }
        asked
    }
}

/// The end of a permit that has none, as Redisson writes it.
const NO_END_MS: f64 = 922_337_203_685_477.0;

impl Semaphore {
    /// The holders of at most `max` of its permits, the one whose lease ends first at the head. Of each the owner, the
    /// number of its permits (`holds`) and the rest of the lease are known. They are read from the sorted set beside
    /// the semaphore.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn holders(&self, max: usize) -> Result<Vec<Holder>> {
        let terms = &self.0.terms;
        let name = permits_of(&terms.key);
        let unread = |_| Error::reply(terms.server.name());
        let (s, us): (u64, u64) =
            from_redis_value(self.ask(&cmd("TIME")).await?).map_err(unread)?;
        let now = s * 1_000 + us / 1_000;
        let mut command = cmd("ZRANGEBYSCORE");
        command.arg(name).arg(format!("({now}")).arg("+inf");
        command.arg("WITHSCORES").arg("LIMIT").arg(0).arg(max);
        let ends: Vec<(Vec<u8>, f64)> =
            from_redis_value(self.ask(&command).await?).map_err(unread)?;
        let mut holders: Vec<Holder> = Vec::new();
        for (permit, end) in ends {
            let owner = owner_of(&permit);
            match holders.iter_mut().find(|holder| holder.owner == owner) {
                Some(holder) => holder.holds += 1,
                None => holders.push(Holder {
                    owner: owner.to_vec(),
                    holds: 1,
                    remaining: (end < NO_END_MS).then(|| Duration::from_millis(end as u64 - now)),
                    ..Holder::default()
                }),
            }
        }
        Ok(holders)
    }

    /// Takes the permit of this owner away. False when it holds none.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn break_permit(&self, owner: impl AsRef<[u8]>) -> Result<bool> {
        let words = [&self.0.terms.key, owner.as_ref()];
        let reply = self.ask(cmd("SEM.RELEASE").arg(&words)).await?;
        Ok(reply == Value::Int(1))
    }
}

/// An iteration over the locks of a server. A key may occur twice, as with `SCAN`.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Search;
///
/// let mut scan = server.scan(Search::held()).await?;
/// while let Some(keys) = scan.step().await? {
///     println!("{} more", keys.len());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a walk that takes no step finds nothing"]
pub struct Scan {
    server: Server,
    nodes: VecDeque<ConnectionInfo>,
    cursor: Vec<u8>,
    search: Search,
}

impl Scan {
    /// The next keys, possibly an empty list; None at the end.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn step(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(node) = self.nodes.front() else {
            return Ok(None);
        };
        let are_semaphores = self.search.of == Sought::Semaphores;
        let mut command = cmd(if are_semaphores { "SCAN" } else { "LOCK.SCAN" });
        command.arg(&self.cursor).arg("COUNT").arg(KEYS_PER_STEP);
        let pattern = self.search.pattern.clone();
        let pattern = match are_semaphores {
            true => Some(pattern.map_or(b"*:timeout".to_vec(), |of| permits_of(&of))),
            false => pattern,
        };
        if let Some(pattern) = pattern {
            command.arg("MATCH").arg(pattern);
        }
        if let Some(owner) = &self.search.owner {
            command.arg("OWNER").arg(owner);
        }
        match self.search.of {
            Sought::Held => {}
            Sought::Waited => drop(command.arg("WAITED")),
            Sought::Semaphores => drop(command.arg("TYPE").arg("zset")),
        }
        let reply = within(self.server.ask(node, &command)).await?;
        let [cursor, keys] = list(&reply) else {
            return Err(Error::reply(self.server.name()));
        };
        self.cursor = bytes(cursor);
        if self.cursor == b"0" {
            self.nodes.pop_front();
        }
        let keys = list(keys).iter().map(bytes);
        Ok(Some(match are_semaphores {
            true => keys.filter_map(|key| semaphore_of(&key)).collect(),
            false => keys.collect(),
        }))
    }
}

/// The owner of an entry of the permits: the second of one acquisition is `#2:` and the owner.
fn owner_of(permit: &[u8]) -> &[u8] {
    let mut parts = permit.splitn(2, |byte| *byte == b':');
    match (permit.first(), parts.nth(1)) {
        (Some(b'#'), Some(owner)) => owner,
        _ => permit,
    }
}

/// The key beside a semaphore that has its permits, as Redisson names it.
pub(crate) fn permits_of(semaphore: &[u8]) -> Vec<u8> {
    match semaphore.contains(&b'{') {
        true => [semaphore, b":timeout"].concat(),
        false => [b"{", semaphore, b"}:timeout"].concat(),
    }
}

/// The semaphore that has its permits in this key.
fn semaphore_of(permits: &[u8]) -> Option<Vec<u8>> {
    let name = permits.strip_suffix(b":timeout")?;
    let inner = name
        .strip_prefix(b"{")
        .and_then(|name| name.strip_suffix(b"}"));
    let is_whole = |inner: &&[u8]| !inner.contains(&b'{') && !inner.contains(&b'}');
    Some(inner.filter(is_whole).unwrap_or(name).to_vec())
}
