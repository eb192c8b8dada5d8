//! Errors of store URLs, each with its remedy.
use idempotent_core::StoreError;

/// An error of opening a store by its URL. The texts mask passwords as `***`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is empty.
    #[error("invalid store url: it is empty; there is {}", there_is())]
    Empty,
    /// The text before the first colon is no scheme, or there is no colon.
    #[error("invalid store url `{url}`: {hint}")]
    NoScheme {
        /// The URL, with masked passwords.
        url: Box<str>,
        /// A suggestion.
        hint: Box<str>,
    },
    /// The scheme is unknown.
    #[error("invalid store url `{url}`: the scheme `{scheme}` is not known{}; there is {}", meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?")), there_is())]
    UnknownScheme {
        /// The URL, with masked passwords.
        url: Box<str>,
        /// The text before the colon.
        scheme: Box<str>,
        /// A known scheme that resembles it.
        meant: Option<&'static str>,
    },
    /// A part of the URL is invalid.
    #[error("invalid store url `{url}`: {part}")]
    Invalid {
        /// The URL, with masked passwords.
        url: Box<str>,
        /// The part, and the rule that it breaks.
        part: Box<str>,
    },
    /// The store exists, but this program was built without it.
    #[error(
        "a `{scheme}` store needs the feature `{feature}`, which is off: in Cargo.toml say `idempotent = {{ package = \
         \"idempotent-rs\", version = \"{}\", features = [\"{feature}\"] }}`", env!("CARGO_PKG_VERSION")
    )]
    FeatureOff {
        /// The URL's scheme.
        scheme: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the stores that this program can open, and those that a feature adds.
fn there_is() -> String {
    let stores = [
        ("`sqlite:PATH`", "sqlite", cfg!(feature = "sqlite")),
        ("`redis://HOST`", "redis", cfg!(feature = "redis")),
        ("`postgres://HOST/DATABASE`", "postgres", cfg!(feature = "postgres")),
        ("`mysql://HOST/DATABASE`", "mysql", cfg!(feature = "mysql")),
    ];
    let built_in = stores.iter().filter(|(.., on)| *on).map(|(place, ..)| *place);
    let built_in: Vec<_> = ["`memory:`"].into_iter().chain(built_in).collect();
    let off = stores.iter().filter(|(.., on)| !on);
    let off: String = off.map(|(place, feature, _)| format!(", and {place} with the feature `{feature}`")).collect();
    format!("{}{off}", built_in.join(", "))
}
