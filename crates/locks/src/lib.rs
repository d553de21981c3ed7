//! The one way to take a lock.
//!
//! The standard library marks a lock as poisoned when a thread panics while it holds the lock. In this project that
//! says nothing about the data behind the lock: a critical section changes the data in steps that each leave it
//! whole, and calls no code of another module. The panic itself ends the machine or the command, in good order, and
//! the thread that ends it needs the locks.
//!
//! The crate imports nothing, so that every other crate may import it.

#![forbid(unsafe_code)]

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Takes the guard out of what a lock or a wait returns, whether or not another thread has panicked:
/// `mutex.lock().unpoisoned()`.
pub trait Unpoisoned {
    /// What is behind the error: the guard, the pair that [`std::sync::Condvar::wait_timeout`] returns, or, of an
    /// attempt, the guard if the lock was free.
    type Guard;

    /// The guard.
    fn unpoisoned(self) -> Self::Guard;
}

impl<G> Unpoisoned for LockResult<G> {
    type Guard = G;

    #[inline]
    fn unpoisoned(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G> Unpoisoned for TryLockResult<G> {
    type Guard = Option<G>;

    #[inline]
    fn unpoisoned(self) -> Option<G> {
        match self {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex, RwLock};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_panicked_keeps_nobody_out() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(2));
        let poisoned = std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let (_first, _second) = (mutex.lock(), shared.write());
                panic!("this is expected");
            });
            panics.join().is_err() && mutex.is_poisoned() && shared.is_poisoned()
        });
        assert!(poisoned);
        let attempt = mutex.try_lock().unpoisoned();
        assert!(
            attempt.is_some() && mutex.try_lock().unpoisoned().is_none(),
            "it is free, and then taken"
        );
        drop(attempt);
        *shared.write().unpoisoned() += 1;
        assert_eq!(*shared.read().unpoisoned(), 3);
        let guard = mutex.lock().unpoisoned();
        let (guard, wait) =
            Condvar::new().wait_timeout(guard, Duration::from_millis(1)).unpoisoned();
        assert!(wait.timed_out());
        assert_eq!(*guard, 1);
    }
}
