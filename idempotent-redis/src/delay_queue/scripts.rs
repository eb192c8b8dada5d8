//! The scripts of a delay queue: what has to look before it writes is one step on the server.
use std::sync::Arc;

use redis::Cmd;

/// Which script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Which {
    Send,
    Take,
    Done,
    Back,
    Keep,
    Bury,
    Cancel,
    Count,
    Letters,
    Redrive,
    Purge,
}

const COMMON: &str = include_str!("scripts/common.lua");

const ALL: [(Which, &str); 11] = [
    (Which::Send, include_str!("scripts/send.lua")),
    (Which::Take, include_str!("scripts/take.lua")),
    (Which::Done, include_str!("scripts/done.lua")),
    (Which::Back, include_str!("scripts/back.lua")),
    (Which::Keep, include_str!("scripts/keep.lua")),
    (Which::Bury, include_str!("scripts/bury.lua")),
    (Which::Cancel, include_str!("scripts/cancel.lua")),
    (Which::Count, include_str!("scripts/count.lua")),
    (Which::Letters, include_str!("scripts/letters.lua")),
    (Which::Redrive, include_str!("scripts/redrive.lua")),
    (Which::Purge, include_str!("scripts/purge.lua")),
];

/// Their texts and hashes.
#[derive(Clone)]
pub(crate) struct Scripts(Arc<[(String, String); ALL.len()]>);

impl Scripts {
    pub(crate) fn new(edit: impl Fn(&str) -> String) -> Self {
        Self(Arc::new(ALL.map(|(_, own)| {
            let text = edit(&format!("{COMMON}\n{own}"));
            let sha = redis::Script::new(&text).get_hash().to_owned();
            (text, sha)
        })))
    }

    /// Begins the command: by its hash, or in full.
    pub(crate) fn command(&self, which: Which, in_full: bool) -> Cmd {
        // In the order of the variants, which a test checks.
        let (text, sha) = &self.0[which as usize];
        let mut cmd = Cmd::new();
        if in_full {
            cmd.arg("EVAL").arg(text)
        } else {
            cmd.arg("EVALSHA").arg(sha)
        };
        cmd
    }
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, sha)| sha)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_stands_at_its_own_place() {
        for (index, (which, _)) in ALL.iter().enumerate() {
            assert_eq!(*which as usize, index);
        }
    }
}
