//! Tickets at the server: whether `NOTIFY` is permitted. And waiters: whether the next one may be granted.

use std::cell::OnceCell;

use crate::lock::{slot_of, Asked, Hearing, KeyId, KeyRef, LockError, Mode, Now};
use crate::module::acl::may_publish;
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::constants::is_cluster;
use crate::module::state::settings;
use crate::module::state::shell;
use crate::module::subscribers;
use crate::module::users;

/// The most waiters that are asked for before one decision, at all its keys together, and one at each; the rest of the
/// queue comes at the end of the tick.
const ASKED_AT_ONCE: usize = 100;

/// Whether a ticket with this channel may wait for this key. On a replica `NOTIFY` is ignored, as `BLOCK` is.
///
/// # Errors
/// [`LockError::NotifyOff`], [`LockError::ChannelElsewhere`], [`LockError::MayNotPublish`],
/// [`LockError::NoSubscriber`]: the first in this order.
pub fn check(ctx: Ctx<'_>, key: Str<'_>, channel: Str<'_>) -> Result<(), LockError> {
    if ctx.is_replica() {
        return Ok(());
    }
    if !settings::has_tickets() {
        return Err(LockError::NotifyOff);
    }
    if is_cluster() && slot_of(key.bytes()) != slot_of(channel.bytes()) {
        return Err(LockError::ChannelElsewhere);
    }
    if !may_publish(ctx, channel) {
        return Err(LockError::MayNotPublish);
    }
    match subscribers::count(ctx, channel) > 0 {
        true => Ok(()),
        false => Err(LockError::NoSubscriber),
    }
}

/// Asks whether the next waiter of this queue may be granted, and the readers behind it if it asks for READ. To be
/// called before every decision that may grant: tickets at the head that are not heard are passed over here, and
/// waiters fail whose users are not permitted any more. `of`: the number of keys of the decision. `has_counter`: a
/// grant writes Redisson's counter.
pub fn ask(ctx: Ctx<'_>, key: KeyRef<'_>, (of, has_counter): (usize, bool), now: Now) {
    if !shell::with(|shell| shell.locks.shared.waiters.must_ask(key)) {
        return;
    }
    for asked in 0..(ASKED_AT_ONCE / of.max(1)).max(1) {
        let next = decide(now, |locks, cx| {
            locks.shared.waiters.next_to_ask(key, asked == 0, cx)
        });
        let (next, fx) = next;
        answers::note_all(ctx, &fx);
        let Some(next) = next else {
            return;
        };
        let hearing = hear(ctx, &next, has_counter, now);
        if hearing == Hearing::Heard && next.mode != Mode::Read {
            return;
        }
    }
}

/// Finds out whether this waiter may be granted, and lets the queues learn it.
pub fn hear(ctx: Ctx<'_>, asked: &Asked, has_counter: bool, now: Now) -> Hearing {
    let hearing = hearing_of(ctx, asked, has_counter);
    let ((), fx) = decide(now, |locks, cx| {
        locks.shared.waiters.learn(asked, hearing, cx)
    });
    answers::note_all(ctx, &fx);
    hearing
}

fn hearing_of(ctx: Ctx<'_>, asked: &Asked, has_counter: bool) -> Hearing {
    // First: the message that the request has failed takes time for each subscriber, too.
    let subscribers = asked.channel.as_ref().map(|channel| {
        let name = OwnedStr::new(channel.name());
        let count = subscribers::count(ctx, name.as_str());
        channel.counted(count);
        count
    });
    if !users::may_take(ctx, asked, has_counter) {
        return Hearing::Forbidden;
    }
    let is_closed = |client: u64| {
        shell::with(|shell| shell.locks.shared.waiters.is_closing(client))
            || ctx.client_info(client).is_none()
    };
    match subscribers {
        None => Hearing::Heard,
        Some(_) if asked.session.is_some_and(is_closed) => Hearing::Closed,
        Some(0) => Hearing::NoSubscriber,
        Some(_) => Hearing::Heard,
    }
}

/// Ends tickets whose channel has had no subscriber for the grace time, or whose user has been deleted, some in every
/// call.
pub fn sweep(ctx: Ctx<'_>, now: Now) {
    const CHANNELS_AT_ONCE: usize = 500;
    let channels = shell::with(|shell| {
        shell
            .locks
            .shared
            .waiters
            .channels_to_ask(CHANNELS_AT_ONCE, now)
    });
    if !channels.is_empty() {
        let names: Vec<_> = channels
            .iter()
            .map(|channel| OwnedStr::new(channel.name()))
            .collect();
        let names: Vec<_> = names.iter().map(OwnedStr::as_str).collect();
        let counts = subscribers::count_all(ctx, &names);
        for (channel, count) in channels.iter().zip(counts) {
            channel.counted(count);
            let is_subscribed = count > 0;
            shell::with(|shell| {
                shell
                    .locks
                    .shared
                    .waiters
                    .learn_channel(channel, is_subscribed, now)
            });
        }
    }
    users::look_for_deleted(ctx);
    if shell::with(|shell| shell.locks.shared.waiters.has_gone()) {
        let ((), fx) = decide(now, |locks, cx| locks.shared.waiters.end_gone(cx));
        answers::note_all(ctx, &fx);
    }
}

/// What the cluster says of this node, asked once in a tick and only if it is needed.
#[derive(Default)]
pub struct Cluster(OnceCell<(Option<String>, Option<String>)>);

impl Cluster {
    /// The server refuses writes to this key. If its slot is another node's, or the cluster is down, the tickets fail,
    /// many of them each time that the key is tried again: the server redirects parked clients itself.
    pub fn fail_if_elsewhere(&self, ctx: Ctx<'_>, id: &KeyId, now: Now) {
        let key = id.as_ref();
        if !is_cluster() || !shell::with(|shell| shell.locks.shared.waiters.has_tickets(key)) {
            return;
        }
        let ask = || (cluster(ctx, b"INFO"), cluster(ctx, b"NODES"));
        let error = match self.0.get_or_init(ask) {
            (Some(info), _) if info.contains("cluster_state:fail") => LockError::ClusterDown,
            (_, Some(nodes)) if !is_own(nodes, slot_of(key.name)) => LockError::Moved,
            _ => return,
        };
        let ((), fx) = decide(now, |locks, cx| {
            locks.shared.waiters.fail_tickets_at(key, &error, cx);
        });
        answers::note_all(ctx, &fx);
    }
}

fn cluster(ctx: Ctx<'_>, word: &[u8]) -> Option<String> {
    let word = OwnedStr::new(word);
    let reply = Reply::of(ctx, c"CLUSTER", How::AsModule, &[word.as_str()])?;
    Some(String::from_utf8_lossy(reply.whole().bytes()?).into_owned())
}

/// Whether `CLUSTER NODES` lists this slot for the node that replies: `id address flags master ping pong epoch state
/// [slot | first-last]...`.
fn is_own(nodes: &str, slot: u16) -> bool {
    let fields = nodes.lines().map(|line| line.split(' '));
    let mut own = fields.filter(|fields| {
        let flags = fields.clone().nth(2).unwrap_or_default();
        flags.split(',').any(|flag| flag == "myself")
    });
    own.next().is_some_and(|fields| {
        fields.skip(8).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<u16>(), last.parse::<u16>());
            matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    })
}
