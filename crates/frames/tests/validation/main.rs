//! The validation of page tables: rule by rule, by random scripts beside a model, and with back-ends at work.

mod concurrency;
mod model;
mod rules;
mod scripts;
mod support;
