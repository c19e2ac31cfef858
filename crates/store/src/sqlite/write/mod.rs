//! The write path: one thread decides each commit (`writer`), another makes it durable (`saver`).

pub(super) mod begun;
pub(super) mod checkpointer;
pub(super) mod decide;
pub(super) mod load;
pub(super) mod rest;
pub(super) mod save;
pub(super) mod saver;
pub(super) mod work;
pub(super) mod write_plan;
pub(super) mod writer;
pub(super) mod writer_thread;
