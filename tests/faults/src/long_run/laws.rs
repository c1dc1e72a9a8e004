//! The laws at the end of each minute and of each slice.

use std::time::{Duration, Instant};

use redis_lock_harness::at_rest::gauges_above_zero;
use redis_lock_harness::patience;

use super::site::{field, Site};
use super::{residents, settings, GROWTH};

/// Gauges that the residents' holds keep above zero; every other one is to be 0.
const OF_RESIDENTS: [&str; 2] = ["grants_tracked:", "sem_grants_tracked:"];

/// Never anything else than zero.
const NEVER: [&str; 4] = [
    "lock_panics",
    "lock_replication_failures",
    "lock_horizons_implausible",
    "lock_tokens_implausible",
];

/// Waits until the condition answers `None`.
///
/// # Errors
/// Its last answer.
pub fn until(mut condition: impl FnMut() -> Option<String>) -> Result<(), String> {
    let start = Instant::now();
    while let Some(text) = condition() {
        if start.elapsed() > patience() {
            return Err(text);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// All clients have ended: every queue is empty, all short leases are over, the residents are complete.
///
/// # Errors
/// What is left.
pub fn quiet(site: &Site) -> Result<(), String> {
    settings::restore(&mut site.conn());
    residents::fill(&mut site.conn())?;
    until(|| {
        let info = site.conn().run(["INFO", "lock"]).text();
        let mut rest = gauges_above_zero(&info);
        rest.retain(|gauge| !OF_RESIDENTS.iter().any(|name| gauge.starts_with(name)));
        (!rest.is_empty()).then(|| format!("not empty without clients: {}", rest.join(" ")))
    })?;
    let info = site.conn().run(["INFO", "lock"]).text();
    if let Some(name) = NEVER.iter().find(|name| field(&info, name) > 0) {
        return Err(format!("{name}:{}", field(&info, name)));
    }
    until(|| {
        let digest = site.digest();
        let key = digest.short_lived()?;
        Some(format!("still has a lease: {key}"))
    })?;
    site.primary.borrow_mut().health()
}

/// The memory is that of the baseline again, within a bound. Returns it.
///
/// # Errors
/// The growth.
pub fn memory(site: &Site, baseline: u64) -> Result<u64, String> {
    let mut settled = 0;
    until(|| {
        settled = site.memory().settled;
        let growth = settled.saturating_sub(baseline);
        (growth > GROWTH).then(|| {
            format!(
                "memory has grown by {growth} bytes since the first minutes: more than {GROWTH}"
            )
        })
    })?;
    Ok(settled)
}
