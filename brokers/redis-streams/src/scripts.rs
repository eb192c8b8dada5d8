//! The Lua scripts. Each operation that reads before it writes is one atomic script call.
use std::sync::LazyLock;

use redis::Script;

macro_rules! scripts {
    ($($(#[doc = $doc:literal])* $name:ident = $file:literal;)+) => {
        $($(#[doc = $doc])*
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));)+
    };
}

scripts! {
    /// Adds entries in order.
    ADD = "scripts/add.lua";
    /// Takes over idle entries.
    TAKE = "scripts/take.lua";
    /// Resets the idle time of held entries.
    KEEP = "scripts/keep.lua";
    /// Delays an entry.
    LATER = "scripts/later.lua";
    /// Moves an entry to the dead letters.
    BURY = "scripts/bury.lua";
    /// Moves a dead letter back to the stream.
    BACK = "scripts/back.lua";
    /// Acknowledges an entry, and removes what belongs to it.
    DONE = "scripts/done.lua";
    /// Trims the entries that all groups have settled.
    TRIM = "scripts/trim.lua";
}
