//! The [`Predecessor`] trait: names of the call that another call comes after.
use crate::{Identity, Key, KeyError, KeyPart, Parts};

/// A name of the call that another call comes after.
///
/// Anything that makes a key names a call of the same scene, scope, tenant and namespace. An [`Identity`] or a [`Key`]
/// names any other call. `None` marks the first call of a chain, which comes after nothing.
///
/// A missing part *within* a key is an error, as for keys, and does not mark the first call. Instead of
/// `(user, number.checked_sub(1))`, write `number.checked_sub(1).map(|before| (user, before))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify a predecessor",
    label = "must be parts of a key, an `Identity`, a `Key`, or an `Option` of one",
    note = "use text, bytes, an integer, or a tuple of these for a call of the same handler, and an `Identity` for another handler"
)]
pub trait Predecessor {
    #[doc(hidden)]
    fn named(&self) -> Option<Named>;
}

/// A predecessor as given, before the identity of the call itself is known.
#[doc(hidden)]
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "boxed by the call as soon as it is made")]
pub enum Named {
    /// The key parts of a call of the same handler.
    Parts(Parts),
    /// The identity of any other call.
    Identity(Identity),
    /// The key of any other call.
    Key(Key),
}

impl Named {
    /// Returns the predecessor's key, for a call of the identity `own`.
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
        self.write_to(&mut parts);
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
