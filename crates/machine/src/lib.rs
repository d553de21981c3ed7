//! What a computer is: its memory map, its interrupt controllers and timers, and how it boots.
//!
//! This crate knows no host: time, randomness, memory and files are handed to it.

#![forbid(unsafe_code)]

pub mod boot;
