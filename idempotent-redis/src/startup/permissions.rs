//! Probes for the permissions of the store's user: each command once, in a form that changes nothing.
use idempotent_core::Key;
use redis::{Cmd, Pipeline, Value};

use crate::scripts::{Dialect, SETTLED};

#[derive(Debug)]
struct PermissionProbe {
    /// Name of the command in ACL rules, after `+`.
    name: &'static str,
    /// A command that changes nothing. `@epoch` and `@nothing` are placeholders for keys.
    harmless: &'static [&'static str],
    needed: PermissionNeed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PermissionNeed {
    Always,
    /// Optional: without the permission, some features are missing.
    Partly,
    /// Required for one dialect of the scripts only.
    In(Dialect),
}

impl PermissionProbe {
    /// Returns whether a store that only reads uses the command.
    fn reads(&self) -> bool {
        READING.contains(&self.name)
    }
}

/// The commands of a store that only reads.
const READING: [&str; 10] =
    ["eval", "evalsha", "time", "get", "getrange", "strlen", "pttl", "pexpiretime", "scan", "info"];

/// A script with flags that does nothing and runs on replicas and when memory is full.
const FLAGGED: &str = "#!lua flags=no-writes,allow-oom\nreturn 1";
const NO_SUCH_SCRIPT: &str = "0000000000000000000000000000000000000000";

const RIGHTS: [PermissionProbe; 15] = [
    PermissionProbe { name: "eval", harmless: &["EVAL", FLAGGED, "0"], needed: PermissionNeed::Always },
    PermissionProbe { name: "evalsha", harmless: &["EVALSHA", NO_SUCH_SCRIPT, "0"], needed: PermissionNeed::Always },
    PermissionProbe { name: "time", harmless: &["TIME"], needed: PermissionNeed::Always },
    PermissionProbe { name: "get", harmless: &["GET", "@epoch"], needed: PermissionNeed::Always },
    // `NX` with `XX` is invalid, but the server checks the permission first.
    PermissionProbe { name: "set", harmless: &["SET", "@nothing", "1", "NX", "XX"], needed: PermissionNeed::Always },
    PermissionProbe { name: "del", harmless: &["DEL", "@nothing"], needed: PermissionNeed::Always },
    PermissionProbe { name: "pttl", harmless: &["PTTL", "@nothing"], needed: PermissionNeed::Always },
    PermissionProbe { name: "getrange", harmless: &["GETRANGE", "@nothing", "0", "0"], needed: PermissionNeed::Always },
    PermissionProbe { name: "setrange", harmless: &["SETRANGE", "@nothing", "0", ""], needed: PermissionNeed::Always },
    PermissionProbe {
        name: "pexpiretime",
        harmless: &["PEXPIRETIME", "@nothing"],
        needed: PermissionNeed::In(Dialect::Flags),
    },
    PermissionProbe { name: "persist", harmless: &["PERSIST", "@nothing"], needed: PermissionNeed::In(Dialect::Plain) },
    PermissionProbe { name: "publish", harmless: &["PUBLISH", SETTLED, ""], needed: PermissionNeed::Partly },
    PermissionProbe { name: "scan", harmless: &["SCAN", "0", "COUNT", "1"], needed: PermissionNeed::Partly },
    PermissionProbe { name: "strlen", harmless: &["STRLEN", "@nothing"], needed: PermissionNeed::Partly },
    PermissionProbe { name: "info", harmless: &["INFO"], needed: PermissionNeed::Partly },
];

#[derive(Debug, Default, PartialEq)]
pub(crate) struct MissingPermissions {
    /// Permissions that every operation needs.
    pub(crate) needed: Vec<String>,
    /// Permissions that some features need.
    pub(crate) partly: Vec<String>,
}

/// A group of probes that are sent together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeSet {
    /// The dialect of the probes, or `None` for probes of all servers.
    dialect: Option<Dialect>,
    read_only: bool,
}

impl ProbeSet {
    /// Returns the probes for all servers. With `read_only`, no probe is a command that writes.
    pub(crate) fn first(read_only: bool) -> Self {
        Self { dialect: None, read_only }
    }

    /// Returns the probes for one dialect, sent once the dialect is known, because the server logs each refusal.
    pub(crate) fn of(dialect: Dialect, read_only: bool) -> Self {
        Self { dialect: Some(dialect), read_only }
    }

    fn rights(self) -> impl Iterator<Item = &'static PermissionProbe> {
        RIGHTS.iter().filter(move |right| {
            let is_of_set = match (self.dialect, right.needed) {
                (None, PermissionNeed::In(_)) => false,
                (None, _) => true,
                (Some(dialect), needed) => needed == PermissionNeed::In(dialect),
            };
            is_of_set && (right.reads() || !self.read_only)
        })
    }

    pub(crate) fn count(self) -> usize {
        self.rights().count()
    }
}

pub(crate) fn ask(pipeline: &mut Pipeline, namespace: &str, of: ProbeSet) {
    for right in of.rights() {
        let mut cmd = Cmd::new();
        for word in right.harmless {
            match *word {
                "@epoch" => cmd.arg(epoch_key(namespace)),
                "@nothing" => cmd.arg(format!("{namespace}:nothing")),
                word => cmd.arg(word),
            };
        }
        pipeline.add_command(cmd);
    }
}

pub(crate) fn answer<'a>(of: ProbeSet, reply: &'a [Value], name: &str) -> Option<&'a Value> {
    reply.get(of.rights().position(|right| right.name == name)?)
}

pub(crate) fn epoch_key(namespace: &str) -> String {
    format!("{namespace}:epoch")
}

/// Returns the script dialect by the replies to the probes, or `None` if they are inconclusive.
pub(crate) fn dialect(reply: &[Value]) -> Option<Dialect> {
    match reply.first()? {
        Value::Int(1) => Some(Dialect::Flags),
        // The server parsed the first line as Lua.
        Value::ServerError(error) if error.details().is_some_and(|text| text.contains("compiling")) => {
            Some(Dialect::Plain)
        }
        _ => None,
    }
}

/// Adds the missing permissions, as ACL rules.
pub(crate) fn missing(missing: &mut MissingPermissions, of: ProbeSet, reply: &[Value], namespace: &str) {
    for (right, reply) in of.rights().zip(reply) {
        let Value::ServerError(error) = reply else { continue };
        if error.code() != "NOPERM" {
            continue;
        }
        let list = if right.needed == PermissionNeed::Partly { &mut missing.partly } else { &mut missing.needed };
        let rule = rule_for(error.details().unwrap_or_default(), right.name, namespace);
        if !list.contains(&rule) {
            list.push(rule);
        }
    }
}

fn rule_for(refusal: &str, name: &str, namespace: &str) -> String {
    let about = |one: &str, many: &str| refusal.contains(one) || refusal.contains(many);
    if about("access a channel", "of the channels used") {
        CHANNELS.to_owned()
    } else if about("access a key", "of the keys used") {
        key_patterns(namespace)
    } else {
        format!("+{name}")
    }
}

/// Returns the patterns for all keys of a namespace, and for no others. Record keys contain the readable form of the
/// namespace, and the key of the epoch contains the namespace unchanged.
fn key_patterns(namespace: &str) -> String {
    let mut exact = String::new();
    for char in namespace.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '\\' | '^') {
            exact.push('\\');
        }
        exact.push(char);
    }
    let record = Key::from_parts(namespace, 0);
    if record.name() == namespace { format!("~{exact}:*") } else { format!("~{exact}:* ~{}:*", record.name()) }
}

const CHANNELS: &str = "&idempotent:*";

/// Permissions for some setups, in words. [`rule`] takes them as `more`.
pub(crate) const EXTRA: &str = ", with Sentinel `+role`, in a cluster `+asking +cluster|info +cluster|slots`, with another \
                                database `+select`, with a durability `+wait` or `+waitaof`";

/// Returns the complete rule for a user, as for `ACL SETUSER`. With `read_only`, the rule permits no command that writes.
pub(crate) fn rule(namespace: &str, dialect: Dialect, more: &[&str], read_only: bool) -> String {
    let mut names: Vec<&str> = RIGHTS
        .iter()
        .filter(|right| !matches!(right.needed, PermissionNeed::In(other) if other != dialect))
        .filter(|right| right.reads() || !read_only)
        .map(|right| right.name)
        .chain(["subscribe"])
        .chain(more.iter().copied())
        .collect();
    names.sort_unstable();
    let names: Vec<String> = names.iter().map(|name| format!("+{name}")).collect();
    format!("{} {CHANNELS} {}", key_patterns(namespace), names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_names_every_command_of_the_scripts() {
        let rules =
            [Dialect::Flags, Dialect::Plain].map(|dialect| (dialect, rule("idempotent", dialect, &["select"], false)));
        for (dialect, rule) in rules {
            for command in crate::scripts::commands(dialect) {
                let right = format!("+{}", command.to_lowercase());
                assert!(rule.split(' ').any(|word| word == right), "{right} is not in {rule}");
            }
            assert!(rule.starts_with("~idempotent:* &idempotent:* +") && rule.contains(" +select "), "{rule}");
        }
    }

    #[test]
    fn refusals_of_all_server_versions_are_recognized() {
        for (text, right) in [
            ("this user has no permissions to run the 'get' command", "+get"),
            ("User monkey has no permissions to run the 'get' command", "+get"),
            ("this user has no permissions to access one of the keys used as arguments", "~n:*"),
            ("No permissions to access a key", "~n:*"),
            ("this user has no permissions to access one of the channels used as arguments", "&idempotent:*"),
            ("No permissions to access a channel", "&idempotent:*"),
        ] {
            assert_eq!(rule_for(text, "get", "n"), right, "{text}");
        }
    }
}
