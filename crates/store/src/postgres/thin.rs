//! Thins the log.
