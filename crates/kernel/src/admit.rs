//! Admission placeholder
