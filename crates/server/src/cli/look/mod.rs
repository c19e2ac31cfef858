//! How things look: tables, times, bars, colours, questions, and the one way to the terminal.

pub(crate) mod ask;
pub(crate) mod count;
pub(crate) mod help;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod prose;
pub(crate) mod screen;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod times;
pub(crate) mod view;
