//! Refuses a second list next to the items of a batch: the body gets the items whose keys are free, and all of the other list.
use quote::ToTokens;
use syn::{
    Error, FnArg, GenericArgument, GenericParam, Generics, Ident, Pat, PathArguments, Result, Type, TypeParamBound,
    WherePredicate,
};

use crate::item::AnnotatedFunction;

/// Types whose entries have places. The entries of a map or a set are found by a key, and do not move.
const LISTS: [&str; 9] =
    ["ArrayVec", "BinaryHeap", "LinkedList", "SmallVec", "ThinVec", "TinyVec", "Vec", "VecDeque", "Vector"];
/// Types that only hold their argument.
const HOLDERS: [&str; 6] = ["Arc", "Box", "Cow", "Option", "Pin", "Rc"];

/// Refuses every parameter but `items` that is a list by its type.
pub(super) fn refuse(items: &Ident, function: &AnnotatedFunction) -> Result<()> {
    for input in &function.sig.inputs {
        let FnArg::Typed(arg) = input else { continue };
        if matches!(&*arg.pat, Pat::Ident(name) if name.ident == *items) || !is_list(&arg.ty, &function.sig.generics) {
            continue;
        }
        let name = match &*arg.pat {
            Pat::Ident(name) => name.ident.to_token_stream(),
            pattern => pattern.to_token_stream(),
        };
        let text = format!(
            "`{name}` is a second list beside `{items}`: the body gets the items whose keys are free, so the places of the two \
             lists would differ; put the entry of `{name}` into its item, as in `{items}: Vec<(…, …)>`, or wrap a list that \
             is the same for all items in a type of its own"
        );
        return Err(Error::new_spanned(arg, text));
    }
    Ok(())
}

fn is_list(ty: &Type, generics: &Generics) -> bool {
    let held = |ty: &Type| is_list(ty, generics);
    match ty {
        Type::Slice(slice) => !is_byte(&slice.elem),
        Type::Array(array) => !is_byte(&array.elem),
        Type::Reference(reference) => held(&reference.elem),
        Type::Paren(paren) => held(&paren.elem),
        Type::Group(group) => held(&group.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(held),
        Type::ImplTrait(bounds) => bounds.bounds.iter().any(is_sequence),
        Type::TraitObject(bounds) => bounds.bounds.iter().any(is_sequence),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return false };
            let arguments = match &last.arguments {
                PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
                _ => Vec::new(),
            };
            let mut types = arguments.into_iter().filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            });
            let is_one_of = |names: &[&str]| names.iter().any(|name| last.ident == name);
            match () {
                () if is_one_of(&LISTS) => types.next().is_none_or(|element| !is_byte(element)),
                () if is_one_of(&HOLDERS) => types.any(held),
                () => path.path.get_ident().is_some_and(|name| is_sequence_parameter(name, generics)),
            }
        }
        _ => false,
    }
}

/// Returns whether the type is `u8`: a list of bytes is one value.
fn is_byte(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("u8"))
}

/// Returns whether the bound is `Iterator`, `IntoIterator`, `Stream` or the like.
fn is_sequence(bound: &TypeParamBound) -> bool {
    let TypeParamBound::Trait(bound) = bound else { return false };
    let name = bound.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    name.ends_with("Iterator") || name.ends_with("Stream")
}

/// Returns whether the generic parameter is bound to be a sequence.
fn is_sequence_parameter(name: &Ident, generics: &Generics) -> bool {
    let inline = generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) if param.ident == *name => Some(&param.bounds),
        _ => None,
    });
    let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let clauses = predicates.filter_map(|predicate| match predicate {
        WherePredicate::Type(clause) if matches!(&clause.bounded_ty, Type::Path(path) if path.path.is_ident(name)) => {
            Some(&clause.bounds)
        }
        _ => None,
    });
    inline.chain(clauses).flatten().any(is_sequence)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(parameter: &str) -> bool {
        let function = format!(
            "async fn f<I: Iterator<Item = u8>, S, T>(orders: Vec<O>, {parameter}) -> Vec<R> where S: futures::Stream, T: Ord {{}}"
        );
        let items: Ident = syn::parse_str("orders").unwrap();
        refuse(&items, &AnnotatedFunction::of(function.parse().unwrap()).unwrap()).is_err()
    }

    #[test]
    fn a_parameter_with_an_entry_for_each_item_is_refused() {
        for list in [
            "prices: Vec<u32>",
            "prices: std::vec::Vec<u32>",
            "mut prices: Vec<u32>",
            "prices: &[u32]",
            "prices: &mut [u32]",
            "prices: [u32; 3]",
            "prices: VecDeque<u32>",
            "prices: Arc<[u32]>",
            "prices: Option<Box<Vec<u32>>>",
            "(prices, _): (Vec<u32>, u8)",
            "prices: impl Iterator<Item = u32>",
            "prices: impl IntoIterator<Item = u32> + Send",
            "prices: &mut dyn Iterator<Item = u32>",
            "prices: I",
            "prices: S",
        ] {
            assert!(refused(list), "{list}");
        }
    }

    #[test]
    fn a_parameter_that_is_one_value_for_all_items_is_accepted() {
        for value in [
            "shop: u64",
            "name: &str",
            "secret: &[u8]",
            "secret: [u8; 32]",
            "body: Vec<u8>",
            "rates: &HashMap<Currency, u32>",
            "allowed: BTreeSet<u32>",
            "seen: &Mutex<Vec<u32>>",
            "rates: Rates",
            "price: T",
            "pair: (u8, u8)",
            "price_of: impl Fn(u64) -> u32",
        ] {
            assert!(!refused(value), "{value}");
        }
    }
}
