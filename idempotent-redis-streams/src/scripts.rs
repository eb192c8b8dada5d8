//! The scripts: what has to look before it writes is one step on the server.
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
    /// Takes over what is idle.
    TAKE = "scripts/take.lua";
    /// Keeps alive what is held.
    KEEP = "scripts/keep.lua";
    /// Puts an entry off.
    LATER = "scripts/later.lua";
    /// Puts an entry aside.
    BURY = "scripts/bury.lua";
    /// Puts an entry back.
    BACK = "scripts/back.lua";
    /// Acknowledges and deletes.
    DONE = "scripts/done.lua";
    /// Trims what all groups are done with.
    TRIM = "scripts/trim.lua";
}
