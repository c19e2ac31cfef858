//! Contracts.
