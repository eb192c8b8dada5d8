//! A function of a block, and what the block gives it.
use syn::{Error, Result};

use super::Plan;
use crate::parse::Args;

/// A function of an `impl` or trait that has the attribute.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The arguments that are given for the whole block, and not on the function.
    pub(crate) inherited: Vec<&'static str>,
}

impl Member {
    /// Adds to an error about `argument` that the block gives it.
    fn explain(&self, argument: &str, error: Error) -> Error {
        if !self.inherited.contains(&argument) {
            return error;
        }
        let name = &self.name;
        let text = format!(
            "{error}\n`{name}` inherits `{argument}` from the attribute on its block: override it with \
             `#[idempotent({argument} = …)]` on `{name}`, or leave `{name}` unprotected with `#[idempotent(skip)]`"
        );
        Error::new(error.span(), text)
    }
}

impl Plan {
    /// Explains an error about `argument` where the function inherits that.
    pub(crate) fn explain(&self, argument: &str, error: Error) -> Error {
        match &self.member {
            Some(member) => member.explain(argument, error),
            None => error,
        }
    }
}

/// Refuses `skip` outside a block.
pub(super) fn refuse_skip(args: &Args) -> Result<()> {
    let Some(skip) = &args.skip else { return Ok(()) };
    let text = "`skip` leaves one function of an `impl` or trait unprotected that has `#[idempotent]` itself; here, leave the \
                attribute out";
    Err(Error::new(skip.span(), text))
}
