//! The sums of counters that `lock::stats` promises, for any kind of resource.

use std::collections::BTreeMap;

use crate::lock::tests::sim::Sim;
use crate::lock::Resource;

impl Sim {
    /// The fields of this kind of resource in `INFO lock`.
    pub fn fields(&self, resource: Resource) -> Vec<(&'static str, u64)> {
        let gauges = self.locks.shared.waiters.gauges();
        self.locks.fields(resource, &gauges)
    }

    /// Those of tickets.
    pub fn ticket_fields(&self) -> Vec<(&'static str, u64)> {
        let waiters = &self.locks.shared.waiters;
        waiters.ticket_fields(&waiters.gauges())
    }
}

/// Checks the sums, with the counters and gauges of one kind.
pub fn check(fields: impl IntoIterator<Item = (&'static str, u64)>) {
    let fields: BTreeMap<_, _> = fields.into_iter().collect();
    let of = |name: &str| fields.get(name).copied().unwrap_or_default();
    let with_prefix = |prefix: &str, but: &str| -> u64 {
        let summed = fields
            .iter()
            .filter(|(name, _)| name.starts_with(prefix) && **name != but);
        summed.map(|(_, value)| value).sum()
    };
    let waits = with_prefix("waits_", "waits_parked") + of("waiters");
    assert_eq!(of("waits_parked"), waits, "{fields:?}");
    // `grants_tracked` is the number of present ones.
    let grants = of("grants") + of("adoptions");
    assert_eq!(grants, with_prefix("grants_", ""), "{fields:?}");
}

/// Checks the sum of tickets, with the fields of all kinds together.
pub fn check_tickets(fields: Vec<(&'static str, u64)>) {
    let is_end = |name: &str| !["tickets", "ticket_places", "tickets_queued"].contains(&name);
    let ended: u64 = fields
        .iter()
        .filter(|(name, _)| is_end(name))
        .map(|(_, value)| value)
        .sum();
    let of = |name: &str| fields.iter().find(|field| field.0 == name).unwrap().1;
    assert_eq!(of("tickets_queued"), ended + of("tickets"), "{fields:?}");
}
