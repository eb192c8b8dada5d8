//! The Lua scripts of a delay queue. Each operation that reads before it writes is one atomic script call.
use std::sync::Arc;

use redis::Cmd;

/// A script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DelayScript {
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
    Discard,
}

const COMMON: &str = include_str!("scripts/common.lua");

const ALL: [(DelayScript, &str); 12] = [
    (DelayScript::Send, include_str!("scripts/send.lua")),
    (DelayScript::Take, include_str!("scripts/take.lua")),
    (DelayScript::Done, include_str!("scripts/done.lua")),
    (DelayScript::Back, include_str!("scripts/back.lua")),
    (DelayScript::Keep, include_str!("scripts/keep.lua")),
    (DelayScript::Bury, include_str!("scripts/bury.lua")),
    (DelayScript::Cancel, include_str!("scripts/cancel.lua")),
    (DelayScript::Count, include_str!("scripts/count.lua")),
    (DelayScript::Letters, include_str!("scripts/letters.lua")),
    (DelayScript::Redrive, include_str!("scripts/redrive.lua")),
    (DelayScript::Purge, include_str!("scripts/purge.lua")),
    (DelayScript::Discard, include_str!("scripts/discard.lua")),
];

/// The texts and hashes of the scripts.
#[derive(Clone)]
pub(crate) struct DelayScripts(Arc<[(String, String); ALL.len()]>);

impl DelayScripts {
    pub(crate) fn new(edit: impl Fn(&str) -> String) -> Self {
        Self(Arc::new(ALL.map(|(_, own)| {
            let text = edit(&format!("{COMMON}\n{own}"));
            let sha = redis::Script::new(&text).get_hash().to_owned();
            (text, sha)
        })))
    }

    /// Returns the start of a command that calls a script by its hash, or in full.
    pub(crate) fn command(&self, which: DelayScript, in_full: bool) -> Cmd {
        // The table has the order of the variants, which a test checks.
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

impl std::fmt::Debug for DelayScripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, sha)| sha)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_is_at_the_index_of_its_variant() {
        for (index, (which, _)) in ALL.iter().enumerate() {
            assert_eq!(*which as usize, index);
        }
    }
}
