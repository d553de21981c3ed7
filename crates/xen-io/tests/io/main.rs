//! Back-ends with front-ends that behave as Linux's do, and with such as do not.

mod block;
mod bus;
mod console;
mod grants;
mod hostile;
mod network;
