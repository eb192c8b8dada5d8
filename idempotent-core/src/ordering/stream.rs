//! The [`Stream`] trait: names of streams.
use super::Named;
use crate::{Identity, Key, KeyPart, Parts};

/// A name of a stream of numbered calls.
///
/// Anything that makes a key names a stream of the same scene, scope, tenant and namespace. An [`Identity`] or a
/// [`Key`] names any other stream. A missing part is an error, as for keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify a stream",
    label = "must be parts of a key, an `Identity` or a `Key`",
    note = "use text, bytes, an integer, or a tuple of these for a stream of the same handler, and an `Identity` for several handlers"
)]
pub trait Stream {
    #[doc(hidden)]
    fn stream(&self) -> Named;
}

impl<T: KeyPart + ?Sized> Stream for T {
    fn stream(&self) -> Named {
        let mut parts = Parts::default();
        self.write_to(&mut parts);
        Named::Parts(parts)
    }
}

macro_rules! streams {
    ($($name:ident)*) => {$(
        impl Stream for $name {
            fn stream(&self) -> Named {
                Named::$name(self.clone())
            }
        }

        impl Stream for &$name {
            fn stream(&self) -> Named {
                (**self).stream()
            }
        }
    )*};
}
streams!(Identity Key);
