//! What the server must let us do, and how it is found out whether it does: each command once, in a form that changes
//! nothing.
use redis::{Cmd, Pipeline, Value};

use crate::scripts::{Dialect, SETTLED};

/// One command's right.
#[derive(Debug)]
struct PermissionProbe {
    /// As rules name it, after `+`.
    name: &'static str,
    /// `@epoch` and `@nothing` stand for keys.
    harmless: &'static [&'static str],
    needed: PermissionNeed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PermissionNeed {
    Always,
    /// Without it there is less to be had.
    Partly,
    /// In one form of the scripts only.
    In(Dialect),
}

/// Takes flags, does nothing, and runs on a replica, and with memory full.
const FLAGGED: &str = "#!lua flags=no-writes,allow-oom\nreturn 1";
const NO_SUCH_SCRIPT: &str = "0000000000000000000000000000000000000000";

const RIGHTS: [PermissionProbe; 14] = [
    PermissionProbe { name: "eval", harmless: &["EVAL", FLAGGED, "0"], needed: PermissionNeed::Always },
    PermissionProbe { name: "evalsha", harmless: &["EVALSHA", NO_SUCH_SCRIPT, "0"], needed: PermissionNeed::Always },
    PermissionProbe { name: "time", harmless: &["TIME"], needed: PermissionNeed::Always },
    PermissionProbe { name: "get", harmless: &["GET", "@epoch"], needed: PermissionNeed::Always },
    // Both cannot be asked for: a refusal of the form, after that of the right.
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
    PermissionProbe { name: "info", harmless: &["INFO"], needed: PermissionNeed::Partly },
];

/// What an answer to a harmless command says of its right.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MissingPermissions {
    /// Without these nothing works.
    pub(crate) needed: Vec<String>,
    /// Without these some does not.
    pub(crate) partly: Vec<String>,
}

/// Which rights are asked for together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeSet {
    /// Those that every server has to give.
    First,
    /// Those of one form of the scripts, once that is known: what is refused is in the server's log.
    In(Dialect),
}

impl ProbeSet {
    fn rights(self) -> impl Iterator<Item = &'static PermissionProbe> {
        RIGHTS.iter().filter(move |right| match (self, right.needed) {
            (Self::First, PermissionNeed::In(_)) => false,
            (Self::First, _) => true,
            (Self::In(dialect), needed) => needed == PermissionNeed::In(dialect),
        })
    }

    /// How many.
    pub(crate) fn count(self) -> usize {
        self.rights().count()
    }
}

/// Adds the harmless commands.
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

/// What was answered, of the first, to the harmless command of the right called so.
pub(crate) fn answer<'a>(reply: &'a [Value], name: &str) -> Option<&'a Value> {
    reply.get(ProbeSet::First.rights().position(|right| right.name == name)?)
}

/// The key under which a namespace's protocol stands.
pub(crate) fn epoch_key(namespace: &str) -> String {
    format!("{namespace}:epoch")
}

/// The form of scripts that the server takes, by what it said to one. Nothing where that does not tell.
pub(crate) fn dialect(reply: &[Value]) -> Option<Dialect> {
    match reply.first()? {
        Value::Int(1) => Some(Dialect::Flags),
        // It took the first line for Lua.
        Value::ServerError(error) if error.details().is_some_and(|text| text.contains("compiling")) => {
            Some(Dialect::Plain)
        }
        _ => None,
    }
}

/// Adds what is not allowed, as rules write it.
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
        format!("~{namespace}:*")
    } else {
        format!("+{name}")
    }
}

const CHANNELS: &str = "&idempotent:*";

/// What some stores need besides; [`rule`] has it as `more`.
pub(crate) const EXTRA: &str = ", with Sentinel `+role`, in a cluster `+asking +cluster|info +cluster|slots`, with another \
                                database `+select`, with a durability `+wait` or `+waitaof`";

/// All that a user needs, as `ACL SETUSER` takes it.
pub(crate) fn rule(namespace: &str, dialect: Dialect, more: &[&str]) -> String {
    let mut names: Vec<&str> = RIGHTS
        .iter()
        .filter(|right| !matches!(right.needed, PermissionNeed::In(other) if other != dialect))
        .map(|right| right.name)
        .chain(["subscribe"])
        .chain(more.iter().copied())
        .collect();
    names.sort_unstable();
    let names: Vec<String> = names.iter().map(|name| format!("+{name}")).collect();
    format!("~{namespace}:* {CHANNELS} {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_names_every_command_of_the_scripts() {
        let rules = [Dialect::Flags, Dialect::Plain].map(|dialect| (dialect, rule("idempotent", dialect, &["select"])));
        for (dialect, rule) in rules {
            for command in crate::scripts::commands(dialect) {
                let right = format!("+{}", command.to_lowercase());
                assert!(rule.split(' ').any(|word| word == right), "{right} is not in {rule}");
            }
            assert!(rule.starts_with("~idempotent:* &idempotent:* +") && rule.contains(" +select "), "{rule}");
        }
    }

    #[test]
    fn a_refusal_is_read_in_the_words_of_each_version() {
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
