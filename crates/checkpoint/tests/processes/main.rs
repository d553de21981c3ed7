//! Processes that are frozen, written down and made again, and check themselves.

#![forbid(unsafe_code)]

mod chaos;
mod golden;
mod images;
mod matrix;
mod random;
mod reader;
mod refusals;
mod services;
mod several;
mod single;
mod slots;
mod sockets;
mod support;
mod terminals;
mod tracked;
mod vdso;
