//! The router as who embeds it sees it: frames in, destinations out.

#![forbid(unsafe_code)]

mod destinations;
mod frames;
mod hostile;
mod network;
mod rules;
mod spoofing;
mod turns;
