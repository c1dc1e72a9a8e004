//! Tickets of the models: their channels, their ends, and what of them can be observed.

use crate::lock::tests::sim::tickets::ChannelAndTag;
use crate::lock::tests::sim::{key_ref, sums, Settings, Sim};

/// The channels of a history: each has a subscriber at first.
pub const CHANNELS: [&str; 3] = ["ch0", "ch1", "ch2"];

/// The index of a channel.
pub type Channel = usize;

/// The `NOTIFY` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub channel: Channel,
    tag: u32,
}

impl Ticket {
    pub fn new(channel: Channel, tag: u32) -> Ticket {
        Ticket { channel, tag }
    }

    /// That of a message.
    pub fn of(channel: &str, tag: &str) -> Ticket {
        let index = CHANNELS.iter().position(|name| *name == channel);
        Ticket::new(index.unwrap(), tag.parse().unwrap())
    }

    /// The same for the simulated server.
    pub fn named(self) -> ChannelAndTag {
        (CHANNELS[self.channel].into(), self.tag.to_string())
    }
}

/// Which channels have subscribers, and what is known of them.
#[derive(Debug, Clone)]
pub struct Hearing {
    pub is_subscribed: [bool; CHANNELS.len()],
    /// When a channel was last found without a subscriber.
    pub unheard_at_ms: [Option<u64>; CHANNELS.len()],
    /// The channels that were asked for in this event, and have a subscriber.
    pub heard: [bool; CHANNELS.len()],
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing {
            is_subscribed: [true; CHANNELS.len()],
            unheard_at_ms: [None; CHANNELS.len()],
            heard: [false; CHANNELS.len()],
        }
    }
}

impl Hearing {
    pub fn is_unheard(&self, channel: Channel, mono_ms: u64) -> bool {
        self.unheard_at_ms[channel] == Some(mono_ms)
    }

    /// Subscribers are not in the memory of the module.
    pub fn restarted(&self) -> Hearing {
        Hearing {
            is_subscribed: self.is_subscribed,
            ..Hearing::default()
        }
    }
}

/// The number of tickets, and of their ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub queued: u64,
    pub granted: u64,
    pub timed_out: u64,
    pub withdrawn: u64,
    pub taken_over: u64,
    pub failed: u64,
    pub passed_over: u64,
}

/// A server on which every channel has a subscriber.
pub fn hearing_sim(settings: &Settings) -> Sim {
    let mut sim = Sim::new(settings);
    for channel in CHANNELS {
        sim.subscribe_channel(channel, true);
    }
    sim
}

/// Asserts that every ticket so far has had the end that the model states, and one only.
pub fn assert_ends(sim: &Sim, expected: Ends) {
    let fields = sim.ticket_fields();
    let of = |name: &str| fields.iter().find(|field| field.0 == name).unwrap().1;
    let got = Ends {
        queued: of("tickets_queued"),
        granted: of("tickets_granted"),
        timed_out: of("tickets_timed_out"),
        withdrawn: of("tickets_withdrawn"),
        taken_over: of("tickets_taken_over"),
        failed: of("tickets_failed"),
        passed_over: of("tickets_unheard"),
    };
    assert_eq!(got, expected, "the ends of tickets");
    sums::check_tickets(fields);
}

/// Asserts which of the requests for this lock are tickets, in the order of the queue.
pub fn assert_tickets(sim: &Sim, key: &str, expected: Vec<Option<Ticket>>) {
    let queue = sim.locks.shared.waiters.queue(key_ref(key));
    let waiters = queue.into_iter().flat_map(|queue| queue.iter());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let tickets = waiters.map(|(_, waiter)| {
        let ticket = waiter.ticket.as_ref()?;
        Some(Ticket::of(&text(ticket.channel()), &text(ticket.tag())))
    });
    let tickets: Vec<_> = tickets.collect();
    assert_eq!(tickets, expected, "the tickets of {key}");
}
