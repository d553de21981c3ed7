//! `biv serve`, as its clients see it: machines that are made and controlled over its socket, and what it makes of
//! clients that it should not trust.

#![forbid(unsafe_code)]

mod hostile;
mod life;
mod page;
mod place;
mod python;
mod socket;
