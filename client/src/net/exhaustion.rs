//! Connections that are kept without use, and what they are closed for: a process that has no file descriptor or no
//! local port left needs them for its renewals and releases.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Something that keeps connections without use.
pub(crate) trait Spare: Send + Sync {
    /// Closes all of them.
    fn close_all(&self);
}

/// Of the whole process: the limits are the process's, too.
static SPARES: Mutex<Vec<Weak<dyn Spare>>> = Mutex::new(Vec::new());

/// This one keeps connections from now on.
pub(crate) fn register(spare: Weak<dyn Spare>) {
    let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    spares.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&spare));
    spares.push(spare);
}

/// Closes what is kept without use where this error says that there is no descriptor or port left. False: it says
/// something else, or nothing is kept.
pub(crate) fn make_room(error: &io::Error) -> bool {
    if !is_exhaustion(error) {
        return false;
    }
    let spares = std::mem::take(&mut *SPARES.lock().unwrap_or_else(PoisonError::into_inner));
    let kept: Vec<Arc<dyn Spare>> = spares.iter().filter_map(Weak::upgrade).collect();
    kept.iter().for_each(|spare| spare.close_all());
    !kept.is_empty()
}

fn is_exhaustion(error: &io::Error) -> bool {
    /// The same numbers on all Unix systems.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.kind() == io::ErrorKind::AddrNotAvailable
        || cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
