//! The one way to lock.
//!
//! The standard library marks a lock as poisoned when a thread panics while it holds the lock. Here
//! that says nothing about what the lock protects: a critical section changes it in steps that each
//! leave it whole, and calls no foreign code. The panic itself ends the machine or the command in
//! good order, and the thread that does so needs the locks.

use std::sync::LockResult;

/// What comes out of a lock or a wait, whether or not another thread has panicked: `mutex.lock().unpoisoned()`.
pub trait Unpoisoned {
    /// The guard, or what [`std::sync::Condvar::wait_timeout`] returns.
    type Guard;

    /// The guard.
    fn unpoisoned(self) -> Self::Guard;
}

impl<G> Unpoisoned for LockResult<G> {
    type Guard = G;

    #[inline]
    fn unpoisoned(self) -> G {
        self.unwrap_or_else(std::sync::PoisonError::into_inner)
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
        *shared.write().unpoisoned() += 1;
        assert_eq!(*shared.read().unpoisoned(), 3);
        let guard = mutex.lock().unpoisoned();
        let (guard, wait) =
            Condvar::new().wait_timeout(guard, Duration::from_millis(1)).unpoisoned();
        assert!(wait.timed_out());
        assert_eq!(*guard, 1);
    }
}
