//! What makes no sense in a layer's settings.
use std::fmt;

use idempotent_core::PolicyError;

use crate::ResponseRules;
use crate::layer::config::Scene;

/// A layer that is set up wrong: its policy makes no sense, or something was set that does nothing there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetupError {
    text: Box<str>,
}

impl SetupError {
    /// All that is wrong, if anything is.
    pub(crate) fn of(
        idle: &[Idle],
        empty: impl Iterator<Item = &'static str>,
        policy: Result<(), PolicyError>,
    ) -> Result<(), Self> {
        let policy = policy.err().map(|error| error.to_string());
        let all: Vec<_> = idle.iter().map(Idle::to_string).chain(empty.map(str::to_owned)).chain(policy).collect();
        if all.is_empty() { Ok(()) } else { Err(Self { text: all.join("; ").into() }) }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SetupError {}

/// A setter that was called and does nothing, and what to do instead.
pub(crate) struct Idle {
    setter: &'static str,
    remedy: &'static str,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does nothing here: {}", self.setter, self.remedy)
    }
}

/// Those of the setters called that do nothing for this scene, and what of the rules does nothing.
pub(crate) fn idle(scene: &Scene, called: &[&'static str], rules: &ResponseRules) -> Vec<Idle> {
    let beside = |other| called.contains(&other);
    let remedy = |setter: &str| match (scene, setter) {
        (Scene::Token { .. }, "key" | "key_from") => Some("a token comes in a header, which token_header() names"),
        (Scene::Token { .. }, "required") => Some("a token is always required; skip() lets requests pass"),
        (Scene::Token { .. }, "payload") => Some("a token may be spent on any payload; leave it out"),
        (Scene::Token { .. }, "scope" | "route") => Some("a token's scope is said by Tokens::scope()"),
        (Scene::Token { .. }, "namespace") => Some("a token's namespace is its executor's"),
        (Scene::Token { .. }, "fail_open") => Some("without the store nobody knows a token; leave it out"),
        (Scene::Token { .. }, "window") => Some("a token's answer is kept for the ttl(); set that"),
        (Scene::Param, "key" | "key_from") => Some("params() has no key; for keys there is new()"),
        (Scene::Param, "required") => Some("what a request says is always there; skip() lets requests pass"),
        (Scene::Param, "ttl") => Some("answers are kept for the window(); set that"),
        (Scene::Param, "token_header") => Some("params() has no token; for tokens there is tokens()"),
        (Scene::Key { .. }, "token_header") => {
            Some("a key's header is said by KeyRules::header(); for tokens: tokens()")
        }
        (Scene::Key { .. }, "ttl") if beside("window") => Some("the window() counts in its place; say one of them"),
        (_, "scope") if beside("route") => Some("with route() each route has a scope of its own; say one of them"),
        (_, "route") if beside("scope") => Some("with scope() all routes have one; say one of them"),
        _ => None,
    };
    let calls = called.iter().filter_map(|&setter| remedy(setter).map(|remedy| Idle { setter, remedy }));
    let spill = rules.spills_nothing().then_some(Idle {
        setter: "spill",
        remedy: "what it takes at most is kept in the record already; raise its limit over max_response()",
    });
    calls.chain(spill).collect()
}

/// Returns an error text for each empty setting.
pub(crate) fn empty(methods: bool, scope: bool, namespace: bool, window: bool) -> impl Iterator<Item = &'static str> {
    let found = [
        (
            window,
            "no `window` is in force (it is zero, or a policy's `retain` replaces it), and without keys nothing else tells a new \
             request from a repeated one: set `window` last, to a duration such as 5 s",
        ),
        (methods, "`methods` names none, so that no request is protected: name those that are, or leave the layer out"),
        (scope, "`scope` is empty: name what the keys belong to, or leave it out for a scope by route"),
        (namespace, "`namespace` is empty: name it, or leave it out for that of the executor"),
    ];
    found.into_iter().filter(|(empty, _)| *empty).map(|(_, text)| text)
}
