//! What can be wrong with a store's URL, each with its remedy.
use idempotent_core::StoreError;

/// No store for this URL. The texts show URLs with passwords as `***`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing was given.
    #[error("invalid store url: it is empty; there is {THERE_IS}")]
    Empty,
    /// What stands before the first colon is no scheme, or there is no colon.
    #[error("invalid store url `{url}`: {hint}")]
    NoScheme {
        /// The URL, passwords masked.
        url: Box<str>,
        /// What was probably meant.
        hint: Box<str>,
    },
    /// The scheme is well-formed, but nothing here.
    #[error("invalid store url `{url}`: the scheme `{scheme}` is not known{}; there is {THERE_IS}", meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?")))]
    UnknownScheme {
        /// The URL, passwords masked.
        url: Box<str>,
        /// What stands before the colon.
        scheme: Box<str>,
        /// A known scheme much like it.
        meant: Option<&'static str>,
    },
    /// A part of the URL cannot be.
    #[error("invalid store url `{url}`: {part}")]
    Invalid {
        /// The URL, passwords masked.
        url: Box<str>,
        /// Which, and why.
        part: Box<str>,
    },
    /// The store exists, but this program was built without it.
    #[error(
        "a `{scheme}` store needs the feature `{feature}`, which is off: in Cargo.toml say `idempotent-rs = {{ version = \
         \"{}\", features = [\"{feature}\"] }}`", env!("CARGO_PKG_VERSION")
    )]
    FeatureOff {
        /// The URL's scheme.
        scheme: &'static str,
        /// The feature to enable.
        feature: &'static str,
    },
    /// The scheme is known, its store comes with a later version.
    #[error(
        "no store for `{scheme}` yet: the feature `{feature}` will serve it, and version {} does not have it; there is \
         {THERE_IS}", env!("CARGO_PKG_VERSION")
    )]
    NotYet {
        /// The URL's scheme.
        scheme: &'static str,
        /// The feature that will serve it.
        feature: &'static str,
    },
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] StoreError),
}

#[cfg(feature = "sqlite")]
const THERE_IS: &str = "`memory:` and `sqlite:PATH`";
#[cfg(not(feature = "sqlite"))]
const THERE_IS: &str = "`memory:`, and `sqlite:PATH` with the feature `sqlite`";
