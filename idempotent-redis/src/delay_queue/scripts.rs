//! The Lua scripts of a delay queue. Each operation that reads before it writes is one atomic script call.
use crate::scripts::LoadedScripts;

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

/// The scripts of a queue, at the indices of [`DelayScript`].
pub(crate) type DelayScripts = LoadedScripts<{ ALL.len() }>;

pub(crate) fn load(edit: impl Fn(&str) -> String) -> DelayScripts {
    DelayScripts::new(ALL.map(|(_, own)| edit(&format!("{COMMON}\n{own}"))))
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
