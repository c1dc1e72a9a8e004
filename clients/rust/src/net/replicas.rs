//! The look whether replicas have a grant: its renewal and `WAIT`, sent together.
//!
//! `WAIT` blocks its connection, so these requests have one of their own to each node. Its offset is that of the last
//! write of the connection: the renewal makes it cover the grant, whichever connection that came by. What is asked
//! while one `WAIT` is under way goes together with the next.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::{cmd, Cmd, ConnectionInfo, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::net::address::name_of;
use crate::net::connection::Connection;
use crate::net::server::Server;
use crate::net::tickets::MAX_IDLE;
use crate::runtime::{self, locked};

/// How many replicas have to have a grant, and the time for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub wanted: u32,
    pub within: Duration,
}

/// The replies to the renewals, a moment before they were sent, the number of replicas, and the time that these had: of
/// what is asked together the longest.
pub(crate) type Seen = (Vec<Value>, Moment, u64, Duration);

struct Look {
    server: Server,
    renewals: Vec<Cmd>,
    replies: Vec<Value>,
    replicas: Replicas,
    seen: oneshot::Sender<Result<Seen>>,
}

/// The looks at each node, by its name, each with a task.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<String, UnboundedSender<Look>>>);

impl Looks {
    /// Renews at this node, and waits for the replicas.
    ///
    /// # Errors
    /// When the node cannot be reached, or refuses `WAIT`.
    pub(crate) async fn look(
        self: &Arc<Looks>,
        server: &Server,
        node: &ConnectionInfo,
        renewals: Vec<Cmd>,
        replicas: Replicas,
    ) -> Result<Seen> {
        let (seen, is_seen) = oneshot::channel();
        let look = Look {
            server: server.clone(),
            renewals,
            replies: Vec::new(),
            replicas,
            seen,
        };
        let name = name_of(node);
        {
            let mut nodes = locked(&self.0);
            let asked = nodes.entry(name.clone()).or_insert_with(|| {
                let (sender, asked) = unbounded_channel();
                runtime::spawn(look_on(Arc::downgrade(self), node.clone(), asked));
                sender
            });
            if asked.send(look).is_err() {
                // The task has ended by a defect.
                nodes.remove(&name);
            }
        }
        is_seen
            .await
            .unwrap_or_else(|_| Err(Error::no_answer(&name)))
    }
}

/// The task of a node. It ends when nothing was asked for a while.
async fn look_on(looks: Weak<Looks>, node: ConnectionInfo, mut asked: UnboundedReceiver<Look>) {
    let mut connection = None;
    loop {
        let Ok(first) = timeout(MAX_IDLE, asked.recv()).await else {
            let Some(looks) = looks.upgrade() else { return };
            let mut nodes = locked(&looks.0);
            if asked.is_empty() {
                nodes.remove(&name_of(&node));
                return;
            }
            continue;
        };
        let Some(first) = first else { return };
        let mut together = vec![first];
        while let Ok(next) = asked.try_recv() {
            together.push(next);
        }
        // An acquisition that was dropped meanwhile delays no other.
        together.retain(|look| !look.seen.is_closed());
        look_at(&node, &mut connection, together).await;
    }
}

/// One write for these looks. A connection that has broken since its last use is opened once more.
async fn look_at(node: &ConnectionInfo, connection: &mut Option<Connection>, mut looks: Vec<Look>) {
    let Some(server) = looks.first().map(|look| look.server.clone()) else {
        return;
    };
    let most = looks.iter().map(|look| look.replicas.wanted).max();
    let longest = looks.iter().map(|look| look.replicas.within).max();
    let longest = longest.unwrap_or_default();
    let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let wait = cmd("WAIT").arg(most).arg(millis).take();
    let name = name_of(node);
    let answer = loop {
        let was_open = connection.take().filter(Connection::is_open);
        let is_fresh = was_open.is_none();
        let sent = Moment::now();
        let asked = timeout(server.patience() / 2 + longest, async {
            let open = match was_open {
                Some(open) => open,
                None => server.connect(node).await?,
            };
            let (mut renews, mut waits) = (open.clone(), open.clone());
            let waited = tokio::select! {
                biased;
                // Both are sent at first; these replies come before the other.
                Err(ended) = renew(&mut renews, &mut looks, sent) => Err(ended),
                waited = waits.send(&wait) => waited,
            };
            Ok((waited.map_err(|error| Error::new(&name, error))?, open))
        });
        let asked = asked.await;
        if looks.is_empty() {
            return;
        }
        match asked.unwrap_or_else(|_| Err(Error::no_answer(&name))) {
            Ok((waited, open)) => {
                *connection = Some(open);
                break Ok((waited, sent));
            }
            Err(error) if is_fresh || error.is_silence() => break Err(error),
            Err(_) => {}
        }
    };
    let answer = answer.and_then(|(waited, sent)| match waited {
        Value::Int(had) => Ok((sent, u64::try_from(had).unwrap_or(0))),
        Value::ServerError(error) => {
            let error = Error::new(&name, RedisError::from(error));
            // UNBLOCKED: the node has become a replica meanwhile.
            Err(match error.has_code("UNBLOCKED") {
                true => Error::no_answer(&name),
                false => error,
            })
        }
        _ => Err(Error::reply(&name)),
    });
    for look in looks {
        let seen = answer.clone();
        let _ = look
            .seen
            .send(seen.map(|(sent, had)| (look.replies, sent, had, longest)));
    }
}

/// Renews what the looks are for. One whose hold is not renewed here, because the slot has moved or the hold is lost,
/// needs no replicas: it is answered at once.
async fn renew(
    connection: &mut Connection,
    looks: &mut Vec<Look>,
    sent: Moment,
) -> RedisResult<Infallible> {
    let mut pipeline = Pipeline::new();
    let renewals: Vec<_> = looks.iter().flat_map(|look| &look.renewals).collect();
    let count = renewals.len();
    for renewal in renewals {
        pipeline.add_command(renewal.clone());
    }
    let mut replies = connection.send_all(&pipeline, count).await?.into_iter();
    for look in looks.iter_mut() {
        look.replies = replies.by_ref().take(look.renewals.len()).collect();
    }
    let is_renewed = |look: &Look| look.replies.iter().all(|reply| *reply == Value::Int(1));
    let (renewed, others) = std::mem::take(looks)
        .into_iter()
        .partition::<Vec<_>, _>(is_renewed);
    *looks = renewed;
    for look in others {
        let _ = look.seen.send(Ok((look.replies, sent, 0, Duration::ZERO)));
    }
    match looks.is_empty() {
        true => Err(io::Error::from(io::ErrorKind::Interrupted).into()),
        false => pending().await,
    }
}
