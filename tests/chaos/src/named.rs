//! Enums whose variants have names on the command line.

/// Defines such an enum.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $kind:ident {
            $($(#[doc = $doc:literal])+ $(#[cfg($when:meta)])? $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, serde::Deserialize, Eq, PartialEq, serde::Serialize)]
        #[non_exhaustive]
        pub enum $kind {
            $($(#[doc = $doc])+ $(#[cfg($when)])? #[serde(rename = $name)] $variant,)+
        }

        impl $kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$($(#[cfg($when)])? Self::$variant,)+];

            /// Returns the name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[cfg($when)])? Self::$variant => $name,)+
                }
            }

            /// Returns the kind with this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
            }

            /// Returns the kind that an option names.
            ///
            /// # Errors
            /// The error lists the known names.
            pub fn chosen(option: &str, name: &str) -> Result<Self, String> {
                let known = || Self::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
                Self::named(name).ok_or_else(|| format!("`{option} {name}`: known here: {}", known()))
            }
        }
    };
}
pub(crate) use named;
