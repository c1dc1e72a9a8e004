//! What the module keeps between calls: statics that only the server's main thread touches.

use std::cell::{Ref, RefCell};

/// A value that exists while the module is loaded.
///
/// [`MainThread::with`] borrows it exclusively, so its body calls nothing of the server that can call back: with a key
/// event while a key is opened or deleted, with the answer of a parked client while it is unblocked.
pub struct MainThread<T>(RefCell<Option<T>>);

// SAFETY: `empty` demands that the value is used on one thread, so the RefCell is never touched by two.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// A cell without a value.
    ///
    /// # Safety
    /// Only the server's main thread uses it.
    pub const unsafe fn empty() -> MainThread<T> {
        MainThread(RefCell::new(None))
    }

    /// Sets the value, or with `None` drops it.
    ///
    /// # Panics
    /// When the value is borrowed: a bug, caught by the guard.
    pub fn set(&self, value: Option<T>) {
        *self.0.borrow_mut() = value;
    }

    /// Takes the value out.
    ///
    /// # Panics
    /// When the value is borrowed: a bug, caught by the guard.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }

    /// Whether there is a value, which is not borrowed.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.try_borrow().is_ok_and(|value| value.is_some())
    }

    /// Borrows the value for shared use. Calls into the server may be made meanwhile, if no callback changes the value.
    ///
    /// # Panics
    /// When `with` or `set` runs, or the module is not loaded: bugs, caught by the guard.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref::map(self.0.borrow(), |value| match value {
            Some(value) => value,
            None => panic!("the module is not loaded"),
        })
    }

    /// Borrows the value. No call into the server that could call back is made inside.
    ///
    /// # Panics
    /// When the value is borrowed already, or the module is not loaded: bugs, caught by the guard.
    #[inline]
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        match self.0.borrow_mut().as_mut() {
            Some(value) => body(value),
            None => panic!("the module is not loaded"),
        }
    }

    /// [`MainThread::with`], or `None` where that panics.
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok()?.as_mut().map(body)
    }
}
