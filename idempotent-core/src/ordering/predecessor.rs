//! What a call comes after, as it is named.
use crate::{Identity, Key, KeyError, KeyPart, Parts};

/// Names the call that another one comes after: whatever makes a key (a call of the same scene, scope, tenant and
/// namespace), or an [`Identity`] or a [`Key`] of any other. A `None` is the first of its chain: it comes after nothing.
///
/// A part that is missing *within* a key is no first of a chain but an error, as it is for keys: of
/// `(user, number.checked_sub(1))` say `number.checked_sub(1).map(|before| (user, before))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a call to come after",
    label = "must be what a key is made of, an `Identity`, a `Key`, or an `Option` of those",
    note = "use text, bytes, an integer, or a tuple of those for a call of the same handler, an `Identity` for one of another"
)]
pub trait Predecessor {
    #[doc(hidden)]
    fn named(&self) -> Option<Named>;
}

/// What is known of it before the call's own identity is.
#[doc(hidden)]
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "boxed by the call as soon as it is made")]
pub enum Named {
    /// A call of the same handler.
    Parts(Parts),
    /// A call of any other.
    Identity(Identity),
    /// Likewise.
    Key(Key),
}

impl Named {
    /// Its key, for a call of this identity.
    pub(crate) fn key(self, own: &Identity, namespace: &str, what: &'static str) -> Result<Key, KeyError> {
        match self {
            Self::Parts(parts) => own.sibling(parts).described(what).key(namespace),
            Self::Identity(identity) => identity.key(namespace),
            Self::Key(key) => Ok(key),
        }
    }
}

impl<T: KeyPart + ?Sized> Predecessor for T {
    fn named(&self) -> Option<Named> {
        let mut parts = Parts::default();
        self.feed(&mut parts);
        (!parts.is_missing()).then_some(Named::Parts(parts))
    }
}

macro_rules! named {
    ($($name:ident)*) => {$(
        impl Predecessor for $name {
            fn named(&self) -> Option<Named> {
                Some(Named::$name(self.clone()))
            }
        }

        impl Predecessor for &$name {
            fn named(&self) -> Option<Named> {
                (**self).named()
            }
        }

        impl Predecessor for Option<$name> {
            fn named(&self) -> Option<Named> {
                self.as_ref().and_then(Predecessor::named)
            }
        }

        impl Predecessor for Option<&$name> {
            fn named(&self) -> Option<Named> {
                self.and_then(Predecessor::named)
            }
        }
    )*};
}
named!(Identity Key);
