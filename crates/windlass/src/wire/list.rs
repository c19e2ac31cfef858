//! Lists, and parts of lists.

use serde::{Deserialize, Serialize};

/// What a search found, or a part of it. A part is full, or the last one, unless it says that it is incomplete.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Found<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next part begins: send it as `cursor`. Null at the end.
    pub next: Option<String>,
    /// The search stopped at its time limit before this part was full. There may be more from `next` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<bool>,
}

/// A list, or a part of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct List<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next part begins: send it as `cursor`. Null at the end.
    pub next: Option<String>,
}
