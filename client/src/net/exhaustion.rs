//! Exhaustion of file descriptors or local ports: a process that has none left closes its idle connections, so that
//! renewals and releases can be sent.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An owner of idle connections.
pub(crate) trait IdleConnections: Send + Sync {
    /// Closes all of them.
    fn close_all(&self);
}

/// The pools of the whole process, because the limits are per process.
static POOLS: Mutex<Vec<Weak<dyn IdleConnections>>> = Mutex::new(Vec::new());

/// Registers a pool that has idle connections.
pub(crate) fn register(pool: Weak<dyn IdleConnections>) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&pool));
    pools.push(pool);
}

/// Closes the idle connections if this error means that no descriptor or port is left. False when it means something
/// else, or no pool is registered.
pub(crate) fn close_idle(error: &io::Error) -> bool {
    if !is_exhaustion(error) {
        return false;
    }
    let pools = std::mem::take(&mut *POOLS.lock().unwrap_or_else(PoisonError::into_inner));
    let open: Vec<Arc<dyn IdleConnections>> = pools.iter().filter_map(Weak::upgrade).collect();
    open.iter().for_each(|pool| pool.close_all());
    !open.is_empty()
}

fn is_exhaustion(error: &io::Error) -> bool {
    /// The same numbers on all Unix systems.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.kind() == io::ErrorKind::AddrNotAvailable
        || cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
