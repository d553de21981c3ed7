//! What a run came to, for its caller and for the record.

use std::fmt::Display;

use api::{Ended, record, status};

use super::say::say;

/// How a run ended.
#[derive(Debug)]
pub struct Verdict {
    /// The exit status.
    status: u8,
    /// What has been said of it, if it did not end by itself.
    reason: Option<String>,
}

impl Verdict {
    /// It ended as its command did, or as the user wanted.
    #[must_use]
    pub fn plain(status: u8) -> Verdict {
        Verdict { status, reason: None }
    }

    /// It ended before, for this reason, which is said.
    #[must_use]
    pub fn told(status: u8, reason: String) -> Verdict {
        say(&reason);
        Verdict { status, reason: Some(reason) }
    }

    /// What the record has of a run that ends now; the exit status, or why there is none.
    pub fn split<E: Display>(result: Result<Verdict, E>) -> (Ended, Result<u8, E>) {
        let at = record::now();
        match result {
            Ok(Verdict { status, reason }) => {
                (Ended { at, status, error: None, reason }, Ok(status))
            }
            Err(error) => {
                let said = Some(error.to_string());
                (Ended { at, status: status::FAILURE, error: said, reason: None }, Err(error))
            }
        }
    }
}
