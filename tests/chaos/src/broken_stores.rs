//! Deliberately broken stores: scripts without one of their guards.

/// A deliberate bug: a text of a script, and its replacement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weakness {
    /// The name of the bug.
    pub name: &'static str,
    /// A word in the first comment of the script.
    pub script: &'static str,
    /// The guard in the script.
    pub guard: &'static str,
    /// The replacement.
    pub without: &'static str,
}

impl Weakness {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        WEAKNESSES.iter().find(|weakness| weakness.name == name)
    }

    /// The script without the guard; other scripts as they are.
    #[must_use]
    pub fn edit(&self, text: &str) -> String {
        if text.contains(self.script) { text.replace(self.guard, self.without) } else { text.to_owned() }
    }
}

const CLAIM: &str = "-- Claims.";
const COMPLETE: &str = "-- Consuming becomes consumed.";
const RENEW: &str = "-- Renews leases.";
const RELEASE: &str = "-- Ends attempts";

/// The bugs that a short chaos run must detect.
pub const WEAKNESSES: &[Weakness] = &[
    Weakness {
        name: "complete-any-owner",
        script: COMPLETE,
        guard: "if sub(cur, 1, 2) ~= '\\129P' or sub(cur, 22, 37) ~= sub(g, -17, -2) or known and sub(cur, 3, 18) ~= sub(g, 3, 18) then",
        without: "if false then",
    },
    Weakness {
        name: "release-any-owner",
        script: RELEASE,
        guard: "sub(cur, 1, 2) == '\\129P' and #cur >= 80 and sub(cur, 22, 37) == sub(g, -17, -2) and (#g < 38 or sub(cur, 3, 18) == sub(g, 3, 18))",
        without: "#cur >= 80",
    },
    Weakness {
        name: "renew-any-owner",
        script: RENEW,
        guard: "if sub(cur, 1, 2) ~= '\\129P' or sub(cur, 22, 37) ~= sub(g, -17, -2) or #g == 38 and sub(cur, 3, 18) ~= sub(g, 3, 18) then",
        without: "if false then",
    },
    Weakness {
        name: "early-takeover",
        script: CLAIM,
        guard: "or till > now then return end",
        without: "or till - 500000 > now then return end",
    },
    Weakness {
        name: "consumed-is-granted",
        script: CLAIM,
        guard: "if cur then\n    local r",
        without: "if cur and not string.match(cur, '^\\129[PVFD]') then pcall('SET', k, head .. a .. tail, 'PX', ttl); cur = nil end\n  if cur then\n    local r",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPTS: [(&str, &str); 4] = [
        (CLAIM, include_str!("../../../idempotent-redis/src/scripts/claim.lua")),
        (COMPLETE, include_str!("../../../idempotent-redis/src/scripts/complete.lua")),
        (RENEW, include_str!("../../../idempotent-redis/src/scripts/renew.lua")),
        (RELEASE, include_str!("../../../idempotent-redis/src/scripts/release.lua")),
    ];

    #[test]
    fn each_guard_is_part_of_its_script() {
        for weakness in WEAKNESSES {
            let text = SCRIPTS.iter().find(|(script, _)| *script == weakness.script).map_or("", |(_, text)| *text);
            assert!(text.contains(weakness.script) && text.contains(weakness.guard), "{}", weakness.name);
            assert_ne!(weakness.edit(text), text);
        }
    }
}
