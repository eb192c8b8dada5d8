//! What a refusal of the server means.
use idempotent_core::StoreErrorKind;

/// What a server's refusal means: `{database}`, `{table}` and `{connections}` of the text are put in.
pub(crate) struct Refusal {
    pub(crate) kind: StoreErrorKind,
    pub(crate) text: String,
    /// The server's own words, as far as they hold no value of a row.
    pub(crate) words: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Contention {
    /// They were faster.
    Raced,
    /// They have what it needs in hand.
    Locked,
}
