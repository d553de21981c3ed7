//! Processes that are frozen, written down and made again, and check themselves.

#![forbid(unsafe_code)]

mod images;
mod refusals;
mod single;
mod support;
