//! Pods, as somebody at a shell has them: their life, their names, their terminals, their end in whatever way, and what
//! is left of them.
//!
//! Where the host forbids user namespaces there are no pods: each test says so and is skipped.

#![forbid(unsafe_code)]

mod applications;
mod confined;
mod copying;
mod ends;
mod images;
mod inside;
mod life;
mod machines;
mod moves;
mod names;
mod neighbours;
mod network;
mod ordinary;
mod place;
mod races;
mod reading;
mod steps;
mod storms;
mod terminal;
mod trunks;
