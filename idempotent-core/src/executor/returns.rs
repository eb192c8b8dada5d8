//! The check of a function of an annotated block that is not `async`: rustc decides whether its return type is a future.
//!
//! `(&&ReturnType::<T>::new()).kind()` calls the method of [`IsFuture`] if `T` is a future, since that one needs one dereference less.
use std::future::Future;
use std::marker::PhantomData;

/// A return type.
#[derive(Debug)]
pub struct ReturnType<T: ?Sized>(PhantomData<fn(&T)>);

impl<T: ?Sized> ReturnType<T> {
    /// Returns the type as a value.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only generated code calls it")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// The kind of a future.
#[derive(Debug)]
pub struct Unprotected;

/// The kind of any other type.
#[derive(Debug)]
pub struct Plain;

/// The kind of futures.
pub trait IsFuture {
    /// Returns the kind.
    fn kind(&self) -> Unprotected {
        Unprotected
    }
}

impl<T: Future + ?Sized> IsFuture for &ReturnType<T> {}

/// The kind of all types.
pub trait IsAny {
    /// Returns the kind.
    fn kind(&self) -> Plain {
        Plain
    }
}

impl<T: ?Sized> IsAny for ReturnType<T> {}

/// A kind of return type that needs no protection.
#[diagnostic::on_unimplemented(
    message = "a function of this annotated block returns a future and is no `async fn`, so it would run unprotected",
    label = "this type is a future",
    note = "write the function as an `async fn`, or leave it unprotected with `#[idempotent(skip)]`"
)]
pub trait NeedsNoProtection {}

impl NeedsNoProtection for Plain {}

/// Compiles if the return type needs no protection.
pub fn is_unprotected(_: impl NeedsNoProtection) {}
