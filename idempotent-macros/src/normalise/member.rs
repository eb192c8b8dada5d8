//! A function of a block, and the arguments that it inherits from the block.
use syn::{Error, Result};

use super::AttributePlan;
use crate::parse::AttributeArgs;

/// A function of an `impl` or trait that has the attribute.
pub(crate) struct BlockMember {
    pub(crate) name: String,
    /// The arguments that only the block gives, not the function.
    pub(crate) inherited: Vec<&'static str>,
}

impl BlockMember {
    /// Adds to an error that the block gives `argument`.
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

impl AttributePlan {
    /// Explains an error about `argument` if the function inherits that argument.
    pub(crate) fn explain(&self, argument: &str, error: Error) -> Error {
        match &self.member {
            Some(member) => member.explain(argument, error),
            None => error,
        }
    }
}

/// Refuses `skip` outside a block.
pub(super) fn refuse_skip(args: &AttributeArgs) -> Result<()> {
    let Some(skip) = &args.skip else { return Ok(()) };
    let text = "`skip` leaves one function of an `impl` or trait unprotected that has `#[idempotent]` itself; here, leave the \
                attribute out";
    Err(Error::new(skip.span(), text))
}
