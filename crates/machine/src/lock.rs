//! The one way to lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock means that a device panicked; what it protects is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
