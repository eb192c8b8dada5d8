//! Parsing of `scene = mq, key = order.id, …`. This step checks names; normalisation checks values.
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, Path, Result, Token, Type};

use crate::batch::BatchParameter;
use crate::reserved;
use crate::suggest::did_you_mean;

macro_rules! arguments {
    ($($name:ident: $ty:ty),* ; flags $($flag:ident),*) => {
        /// The given arguments, each at most once.
        #[derive(Clone, Default)]
        pub(crate) struct AttributeArgs {
            $(pub(crate) $name: Option<$ty>,)*
            /// The location of the word.
            $(pub(crate) $flag: Option<Ident>,)*
            pub(crate) krate: Option<Path>,
        }

        const KNOWN: &[&str] = &[$(stringify!($name),)* $(stringify!($flag),)* "crate"];
        const FLAGS: &[&str] = &[$(stringify!($flag),)*];

        impl AttributeArgs {
            /// Returns these arguments, and those of `block` that are missing here.
            fn or(self, block: Self) -> Self {
                Self {
                    $($name: self.$name.or(block.$name),)*
                    $($flag: self.$flag.or(block.$flag),)*
                    krate: self.krate.or(block.krate),
                }
            }

            /// Returns the names of the arguments that are in `self` but not in `own`.
            pub(crate) fn not_in(&self, own: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name.is_some() && own.$name.is_none() { names.push(stringify!($name)); })*
                $(if self.$flag.is_some() && own.$flag.is_none() { names.push(stringify!($flag)); })*
                names
            }

            fn take(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
                match name.unraw().to_string().as_str() {
                    $(stringify!($name) => set(&mut self.$name, name, input, <$ty>::parse),)*
                    $(stringify!($flag) => raise(&mut self.$flag, name, input),)*
                    "crate" => set(&mut self.krate, name, input, Path::parse_mod_style),
                    other => Err(Error::new(name.span(), reserved::argument(other).map_or_else(|| unknown(other), ToOwned::to_owned))),
                }
            }
        }
    };
}

arguments! {
    key: Expr, after: Expr, sequence: Expr, on_broken_order: Expr, on_late: Expr, by: Expr, window: Expr, ttl: Expr, scene: Expr, scope: Expr, prefix: Expr, tenant: Expr, with: Expr,
    lease: Expr, max_run: Expr, retain: Expr, max_retries: Expr,
    on_in_flight: Expr, on_lease_lost: Expr, on_expiry: Expr, on_store_error: Expr,
    fingerprint: Expr, codec: Type, reply: Type, reject: Expr, failed_if: Expr, permanent: Expr, describe: Expr,
    max_result: Expr, message: Expr, transaction: Expr, batch: BatchParameter;
    flags replay, detach, release_on_cancel, skip
}

impl AttributeArgs {
    /// Merges the arguments of a function with those of the surrounding `impl` or trait. The arguments of the function
    /// take precedence.
    ///
    /// Some arguments exclude each other. A function that gives one of them inherits none of the others.
    pub(crate) fn within(self, mut block: Self) -> Self {
        if self.by.is_some() {
            (block.key, block.window, block.ttl, block.replay) = (None, None, None, None);
        }
        if self.is_by_param() {
            (block.retain, block.fingerprint) = (None, None);
        }
        if self.after.is_some() {
            (block.sequence, block.on_late) = (None, None);
        }
        if self.sequence.is_some() {
            block.after = None;
        }
        self.or(block)
    }

    pub(crate) fn is_by_param(&self) -> bool {
        matches!(&self.by, Some(Expr::Path(path)) if path.path.is_ident("param"))
    }
}

impl Parse for AttributeArgs {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut args = Self::default();
        while !input.is_empty() {
            let name = input.call(Ident::parse_any).map_err(|error| {
                Error::new(
                    error.span(),
                    "an argument is `name = value`, e.g. `key = order.id`, or a word like `detach`",
                )
            })?;
            args.take(&name, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(args)
    }
}

fn set<T>(
    slot: &mut Option<T>,
    name: &Ident,
    input: ParseStream<'_>,
    parse: fn(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(twice(name));
    }
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`")));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`")));
    }
    *slot = Some(parse(input)?);
    Ok(())
}

fn raise(flag: &mut Option<Ident>, name: &Ident, input: ParseStream<'_>) -> Result<()> {
    if flag.is_some() {
        return Err(twice(name));
    }
    if input.peek(Token![=]) {
        return Err(Error::new(input.span(), format!("`{name}` takes no value: write `{name}` alone")));
    }
    *flag = Some(name.clone());
    Ok(())
}

fn twice(name: &Ident) -> Error {
    Error::new(name.span(), format!("`{name}` is given twice"))
}

/// Common names from other libraries, with the corresponding arguments.
const ALIASES: &[(&str, &str)] = &[
    ("expire", "`lease` (how long a run may hold the key) or `retain` (how long its result is kept)"),
    ("timeout", "`lease` (how long a run may hold the key) or `max_run` (how long a run may take)"),
    ("retention", "`retain`"),
    ("retries", "`max_retries`"),
    ("max_attempts", "`max_retries`"),
    ("id", "`key`"),
    ("executor", "`with`"),
    ("store", "`with`"),
    ("group", "`scope`"),
    ("name", "`scope`"),
    ("namespace", "`prefix`"),
    ("user", "`tenant`"),
    ("topic", "`scope`"),
    ("token", "`by = token` with `key = token`"),
    ("param", "`by = param`"),
    ("params", "`by = param`"),
    ("principal", "`tenant`"),
    ("tx", "`transaction = tx`"),
    ("predecessor", "`after`"),
    ("depends_on", "`after`"),
    ("order", "`sequence = (stream, number)` or `after`"),
    ("number", "`sequence = (stream, number)`"),
    ("stream", "`sequence = (stream, number)`"),
];

fn unknown(name: &str) -> String {
    let meant = match ALIASES.iter().find(|(alias, _)| *alias == name) {
        Some((_, meant)) => format!("; did you mean {meant}?"),
        None => did_you_mean(name, KNOWN.iter().copied()),
    };
    let named: Vec<_> = KNOWN.iter().filter(|known| !FLAGS.contains(known)).copied().collect();
    format!("unknown argument `{name}`{meant}\nknown: {}; without a value: {}", named.join(", "), FLAGS.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_in_the_list_has_its_error() {
        for (source, want) in [
            (
                "leese = \"1s\"",
                "unknown argument `leese`; did you mean `lease`?\nknown: key, after, sequence, on_broken_order, on_late, by",
            ),
            ("expire = \"1s\"", "did you mean `lease` (how long a run may hold the key) or `retain`"),
            ("key = a, key = b", "`key` is given twice"),
            ("detach, detach", "`detach` is given twice"),
            ("by = param, replay, replay", "`replay` is given twice"),
            ("replay = true", "`replay` takes no value"),
            ("token = t", "did you mean `by = token` with `key = token`?"),
            ("detach = true", "`detach` takes no value"),
            ("key", "`key` needs a value"),
            ("key = , detach", "`key` needs a value"),
            ("\"order.id\"", "an argument is `name = value`"),
            ("version = x", "call `guard.newer(&mut **tx, entity, fields, version)` of an `idempotent::VersionGuard`"),
            ("key = a b", "expected `,`"),
        ] {
            let error =
                syn::parse_str::<AttributeArgs>(source).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{source}: {error}");
        }
        assert!(syn::parse_str::<AttributeArgs>("key = (a, b), codec = Vec<u8>, crate = ::x, detach,").is_ok());
    }
}
