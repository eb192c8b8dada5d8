//! Checks of the settings of a layer.
use std::fmt;

use idempotent_core::PolicyError;

use crate::ResponseRules;
use crate::layer::config::KeySource;

/// The settings of a layer that contradict each other or have no effect, with the remedy for each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetupError {
    text: Box<str>,
}

impl SetupError {
    /// Returns an error that lists everything that is wrong.
    pub(crate) fn of<'a>(
        unused: &[UnusedSetter],
        others: impl Iterator<Item = &'a str>,
        policy: Result<(), PolicyError>,
    ) -> Result<(), Self> {
        let policy = policy.err().map(|error| error.to_string());
        let all: Vec<_> =
            unused.iter().map(UnusedSetter::to_string).chain(others.map(str::to_owned)).chain(policy).collect();
        if all.is_empty() { Ok(()) } else { Err(Self { text: all.join("; ").into() }) }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SetupError {}

/// A setter that was called but has no effect, and the remedy.
pub(crate) struct UnusedSetter {
    setter: &'static str,
    remedy: &'static str,
}

impl fmt::Display for UnusedSetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has no effect here: {}", self.setter, self.remedy)
    }
}

/// Returns the called setters that have no effect with this key source, and the response rules that have none.
pub(crate) fn unused_setters(scene: &KeySource, called: &[&'static str], rules: &ResponseRules) -> Vec<UnusedSetter> {
    let is_set = |other| called.contains(&other);
    let remedy = |setter: &str| match (scene, setter) {
        (KeySource::Token { .. }, "key" | "key_from") => {
            Some("the token comes from a header; set its name with token_header()")
        }
        (KeySource::Token { .. }, "required") => {
            Some("a token is always required; use skip() to pass requests through")
        }
        (KeySource::Token { .. }, "payload") => Some("a token is valid for any payload; remove the call"),
        (KeySource::Token { .. }, "scope" | "route") => Some("the tokens have a scope; set it with Tokens::scope()"),
        (KeySource::Token { .. }, "namespace") => Some("tokens use the namespace of their executor; set it there"),
        (KeySource::Token { .. }, "fail_open") => Some("tokens cannot be verified without the store; remove the call"),
        (KeySource::Token { .. }, "window") => Some("responses are retained for ttl(); set that instead"),
        (KeySource::Param, "key" | "key_from") => Some("a layer of by_param() reads no key; use new() for keys"),
        (KeySource::Param, "required") => Some("every request has a payload; use skip() to pass requests through"),
        (KeySource::Param, "ttl") => Some("responses are retained for window(); set that instead"),
        (KeySource::Param, "token_header") => Some("a layer of by_param() reads no token; use by_token() for tokens"),
        (KeySource::Key { .. }, "token_header") => {
            Some("set the header of the key with KeyRules::header(); use by_token() for tokens")
        }
        (KeySource::Key { .. }, "ttl") if is_set("window") => Some("window() replaces it; set one of them"),
        (_, "scope") if is_set("route") => Some("route() gives each route its own scope; set one of them"),
        (_, "route") if is_set("scope") => Some("scope() gives all routes one scope; set one of them"),
        _ => None,
    };
    let calls = called.iter().filter_map(|&setter| remedy(setter).map(|remedy| UnusedSetter { setter, remedy }));
    let spill = rules.spills_nothing().then_some(UnusedSetter {
        setter: "spill",
        remedy: "the record already stores bodies of that size; raise the limit of spill() above max_response()",
    });
    calls.chain(spill).collect()
}

/// Returns an error text for each empty setting.
pub(crate) fn empty_settings(
    methods: bool,
    scope: bool,
    namespace: bool,
    window: bool,
) -> impl Iterator<Item = &'static str> + use<> {
    let found = [
        (
            window,
            "no `window` is in force: it is zero, or the `retain` of a policy replaces it; a layer without keys needs it to \
             recognize duplicates, so set `window` last, to a duration such as 5 s",
        ),
        (methods, "`methods` is empty and no request would be protected; add methods, or remove the layer"),
        (scope, "`scope` is empty; set a name, or remove the call for a scope by route"),
        (namespace, "`namespace` is empty; set a name, or remove the call for the namespace of the executor"),
    ];
    found.into_iter().filter(|(empty, _)| *empty).map(|(_, text)| text)
}
