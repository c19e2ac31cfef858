//! Access: who may come in and as whom, to whom a lease belongs, and which names are the server's own.

pub mod holder;
pub mod own_names;
pub mod token;
