//! The Lua scripts. Each transition of the protocol is one atomic script call.
use std::sync::Arc;

use redis::Cmd;

/// Channel on which completions and releases notify waiters.
pub(crate) const SETTLED: &str = "idempotent:settled";
/// Channel on which an operator's `forget` notifies caches.
pub(crate) const FORGOTTEN: &str = "idempotent:forgotten";

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Script {
    Claim,
    Complete,
    /// Completes a record that is exactly as granted.
    Replace,
    Renew,
    Release,
    Look,
    Forget,
    Purge,
    Watch,
    Recall,
    Remember,
    Bar,
    Note,
    Steps,
    Line,
    CompareAndSwap,
    /// Replaces a table that does not grow. A server whose memory is full lets this script through.
    Shrink,
    Search,
}

impl Script {
    /// Returns whether the script writes. The other scripts declare `no-writes`.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Look | Self::Recall | Self::Line | Self::Search)
    }
}

const ALL: [(Script, &str); 18] = [
    (Script::Claim, include_str!("scripts/claim.lua")),
    (Script::Complete, include_str!("scripts/complete.lua")),
    (Script::Replace, include_str!("scripts/replace.lua")),
    (Script::Renew, include_str!("scripts/renew.lua")),
    (Script::Release, include_str!("scripts/release.lua")),
    (Script::Look, include_str!("scripts/look.lua")),
    (Script::Forget, include_str!("scripts/forget.lua")),
    (Script::Purge, include_str!("scripts/purge.lua")),
    (Script::Watch, include_str!("scripts/watch.lua")),
    (Script::Recall, include_str!("scripts/recall.lua")),
    (Script::Remember, include_str!("scripts/remember.lua")),
    (Script::Bar, include_str!("scripts/bar.lua")),
    (Script::Note, include_str!("scripts/note.lua")),
    (Script::Steps, include_str!("scripts/steps.lua")),
    (Script::Line, include_str!("scripts/line.lua")),
    (Script::CompareAndSwap, concat!("#!lua\n", include_str!("scripts/compare_and_swap.lua"))),
    (Script::Shrink, concat!("#!lua flags=allow-oom\n", include_str!("scripts/compare_and_swap.lua"))),
    (Script::Search, include_str!("scripts/search.lua")),
];

/// The script features of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dialect {
    /// Redis 7 and Valkey: scripts declare flags, and `SET … NX GET` is one command.
    Flags,
    /// Redis 6.2.
    Plain,
}

/// The texts of scripts, with their hashes.
#[derive(Clone)]
pub(crate) struct LoadedScripts<const N: usize>(Arc<[(String, String); N]>);

impl<const N: usize> LoadedScripts<N> {
    pub(crate) fn new(texts: [String; N]) -> Self {
        Self(Arc::new(texts.map(|text| {
            let sha = redis::Script::new(&text).get_hash().to_owned();
            (text, sha)
        })))
    }

    /// Adds the start of a command that calls a script by its hash, or in full.
    pub(crate) fn add_call(&self, cmd: &mut Cmd, index: usize, in_full: bool) {
        let (text, sha) = &self.0[index];
        if in_full {
            cmd.arg("EVAL").arg(text)
        } else {
            cmd.arg("EVALSHA").arg(sha)
        };
    }
}

impl<const N: usize> std::fmt::Debug for LoadedScripts<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, sha)| sha)).finish()
    }
}

/// The scripts of a store for a server version, at the indices of [`Script`].
pub(crate) type ScriptSet = LoadedScripts<{ ALL.len() }>;

pub(crate) fn load(dialect: Dialect, edit: impl Fn(&str) -> String) -> ScriptSet {
    ScriptSet::new(ALL.map(|(_, text)| edit(&in_dialect(text, dialect))))
}

/// Converts a script for the dialect.
///
/// Before Redis 7, a script declares no flags, and a `SET` with `NX` returns no value. When memory is full, the server
/// rejects the writes of a script until a write that needs no memory has succeeded.
fn in_dialect(text: &str, dialect: Dialect) -> String {
    let text = text.replace("@settled", SETTLED).replace("@forgotten", FORGOTTEN);
    if dialect == Dialect::Flags {
        return text;
    }
    let declares = |line: &str| line.starts_with("#!lua");
    let first = text.lines().next().unwrap_or_default();
    let oom = first.contains("allow-oom");
    let mut plain: String = text.lines().filter(|line| !declares(line)).map(|line| format!("{line}\n")).collect();
    plain = plain.replace(
        "local cur = pcall('SET', k, head .. a .. tail, 'NX', 'GET', 'PX', ttl)",
        "local cur = pcall('GET', k)\n  if not cur then\n    local r = pcall('SET', k, head .. a .. tail, 'PX', ttl)\n    \
         if r.err then cur = r end\n  end",
    );
    if oom {
        plain = plain.replace("pcall('SET', k,", "(pcall('PERSIST', k) and pcall)('SET', k,");
    }
    plain
}

/// Returns the commands that the scripts call.
#[cfg(test)]
pub(crate) fn commands(dialect: Dialect) -> std::collections::BTreeSet<String> {
    let all = ALL.map(|(_, text)| in_dialect(text, dialect)).join("").replace("call)(", "call(");
    let called = all.split("call('").skip(1).filter_map(|rest| Some(rest.split_once('\'')?.0.to_owned()));
    // The plain form does not need this command.
    called.filter(|command| dialect == Dialect::Flags || command != "PEXPIRETIME").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_is_at_the_index_of_its_variant() {
        for (index, (script, _)) in ALL.iter().enumerate() {
            assert_eq!(*script as usize, index);
        }
    }

    #[test]
    fn exactly_the_scripts_that_declare_no_writes_are_sent_by_a_read_only_store() {
        for (script, text) in ALL {
            assert_eq!(script.writes(), !text.starts_with("#!lua flags=no-writes\n"), "{script:?}");
        }
    }

    #[test]
    fn a_plain_script_has_no_flags_and_no_conditional_set_with_get() {
        for (_, text) in ALL {
            let plain = in_dialect(text, Dialect::Plain);
            assert!(!plain.contains("#!lua") && !plain.contains("'NX', 'GET'"), "{plain}");
        }
    }

    #[test]
    fn every_write_of_a_settling_plain_script_passes_when_memory_is_full() {
        let must = ALL.iter().filter(|(_, text)| text.starts_with("#!lua flags=allow-oom"));
        let mut seen = 0;
        for (script, text) in must {
            let plain = in_dialect(text, Dialect::Plain);
            let writes = plain.matches("'SET'").count();
            assert_eq!(
                plain.matches("(pcall('PERSIST', k) and pcall)('SET', k,").count(),
                writes,
                "{script:?}: {plain}"
            );
            seen += writes;
        }
        assert!(seen >= 6, "of {seen} writes");
    }

    #[test]
    fn scripts_that_end_runs_are_allowed_when_memory_is_full_and_claims_are_not() {
        let first = |script: Script| ALL[script as usize].1.lines().next().unwrap_or_default();
        assert_eq!([Script::Claim, Script::CompareAndSwap].map(first), ["#!lua"; 2]);
        for script in
            [Script::Complete, Script::Replace, Script::Renew, Script::Release, Script::Forget, Script::Shrink]
        {
            assert_eq!(first(script), "#!lua flags=allow-oom");
        }
    }
}
