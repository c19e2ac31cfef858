//! Admission: what operators say about who may run, and who may then claim how many.

pub mod admit;
pub mod rule;
