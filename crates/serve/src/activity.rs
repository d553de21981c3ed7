//! What the server has to do: connections and jobs. Without any for some time, it may end.

use std::time::Duration;

use tokio::sync::watch;

/// How much there is to do.
#[derive(Debug, Clone)]
pub struct Activity {
    count: watch::Sender<usize>,
}

/// One thing to do, until it is dropped.
#[derive(Debug)]
pub struct Busy {
    count: watch::Sender<usize>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { count: watch::Sender::new(0) }
    }
}

impl Activity {
    /// Something is to be done.
    #[must_use]
    pub fn begin(&self) -> Busy {
        self.count.send_modify(|count| *count += 1);
        Busy { count: self.count.clone() }
    }

    /// How many things there are to do.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there has been nothing to do for so long.
    pub async fn idle(&self, span: Duration) {
        let mut count = self.count.subscribe();
        loop {
            // It cannot be closed: this value has the other end.
            let _ = count.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(span, count.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_who_has_nothing_to_do_is_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (activity, start) = (Activity::default(), Instant::now());
            let (span, longer) = (Duration::from_millis(20), Duration::from_millis(100));
            let busy = activity.begin();
            assert_eq!(activity.count(), 1);
            tokio::spawn(async move {
                tokio::time::sleep(longer).await;
                drop(busy);
            });
            activity.idle(span).await;
            assert!(start.elapsed() >= longer + span, "{:?}", start.elapsed());
        });
    }
}
