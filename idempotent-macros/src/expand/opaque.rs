//! `impl Trait` as a return type that a strategy replaces by another type. The bounds are still used, still guide
//! inference, and are still checked.
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    BoundLifetimes, Expr, GenericArgument, Lifetime, Macro, ParenthesizedGenericArguments, Path, PathArguments, Type,
    TypeImplTrait, TypeParamBound, TypePath, TypeReference, parse_quote, parse_quote_spanned,
};

/// Replaces each `impl Trait` by `_`, since it cannot be named in the body. Returns whether there was one.
pub(super) fn erase(ty: &mut Type) -> bool {
    let mut eraser = OpaqueEraser(false);
    eraser.visit_type_mut(ty);
    eraser.0
}

struct OpaqueEraser(bool);

impl VisitMut for OpaqueEraser {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        match ty {
            Type::ImplTrait(_) => {
                *ty = parse_quote_spanned!(ty.span()=> _);
                self.0 = true;
            }
            _ => visit_mut::visit_type_mut(self, ty),
        }
    }
}

/// A generated check of the bounds of a return type.
pub(super) struct BoundsCheck {
    /// The checking function.
    pub(super) item: TokenStream,
    /// True if the function takes a reference to the returned value. Otherwise it only uses the imports of the bounds.
    pub(super) takes: bool,
}

/// Generates a function `name` that takes a reference to a value with the bounds of `ret`.
///
/// Generics and lifetimes of the annotated function are not available in the generated one, and neither are generics of
/// the surrounding `impl`, which the macro cannot see. Such bounds are left out.
pub(super) fn check(name: &TokenStream, ret: &Type) -> BoundsCheck {
    let mut taken = ret.clone();
    let takes = restate(&mut taken).is_some();
    let site = Span::mixed_site().located_at(ret.span());
    // Several bounds after `&` need parentheses, and a lint rejects them around a single one.
    let taken = match &taken {
        _ if !takes => holes(ret),
        Type::ImplTrait(hole) if hole.bounds.len() > 1 => quote!((#hole)),
        other => quote!(#other),
    };
    BoundsCheck { item: quote_spanned!(site=> const fn #name(_: &#taken) {}), takes }
}

/// Returns the tuple `(impl A, impl B,)` of all opaque types in `ret`.
fn holes(ret: &Type) -> TokenStream {
    struct OpaqueTypes(Vec<TypeImplTrait>);
    impl Visit<'_> for OpaqueTypes {
        fn visit_type_impl_trait(&mut self, hole: &TypeImplTrait) {
            let mut hole = hole.clone();
            restate_bounds(&mut hole);
            self.0.push(hole);
        }
    }
    let mut holes = OpaqueTypes(Vec::new());
    holes.visit_type(ret);
    let holes = holes.0;
    quote!((#(#holes,)*))
}

/// Rewrites a type for use as an argument of another function: `Result<impl Trait<T> + Send, E>` becomes `Result<impl
/// Send, impl Sized>`.
///
/// Returns `None` if an opaque type is in an unknown generic type.
fn restate(ty: &mut Type) -> Option<()> {
    if !erase(&mut ty.clone()) {
        if !can_be_named(|names| names.visit_type(ty)) {
            *ty = parse_quote!(impl ::core::marker::Sized);
        }
        return Some(());
    }
    match ty {
        Type::ImplTrait(hole) => {
            restate_bounds(hole);
            Some(())
        }
        Type::Paren(paren) => restate(&mut paren.elem),
        Type::Group(group) => restate(&mut group.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().try_for_each(restate),
        // Any other generic type may have bounds that the reduced type does not meet.
        Type::Path(TypePath { qself: None, path, .. }) if takes_anything(path) => {
            path.segments.iter_mut().try_for_each(|segment| match &mut segment.arguments {
                PathArguments::None => Some(()),
                PathArguments::AngleBracketed(arguments) => arguments.args.iter_mut().try_for_each(|argument| {
                    let GenericArgument::Type(ty) = argument else { return None };
                    restate(ty)
                }),
                PathArguments::Parenthesized(_) => None,
            })
        }
        _ => None,
    }
}

fn takes_anything(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| ["Result", "Option", "Box", "Vec"].iter().any(|name| last.ident == name))
}

fn restate_bounds(hole: &mut TypeImplTrait) {
    let stays = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.maybe.is_none() && can_be_named(|names| names.visit_trait_bound(bound)),
        _ => false,
    };
    hole.bounds = hole.bounds.iter().filter(|bound| stays(bound)).cloned().collect();
    if hole.bounds.is_empty() {
        hole.bounds.push(parse_quote!(::core::marker::Sized));
    }
}

fn can_be_named(visit: impl FnOnce(&mut ForeignNames)) -> bool {
    let mut names = ForeignNames { unknown: false, in_function: false };
    visit(&mut names);
    !names.unknown
}

/// A visitor that detects names which have another meaning, or no meaning, in a separate function.
struct ForeignNames {
    unknown: bool,
    /// True inside the parentheses of `Fn(&str)`, where references have their own lifetimes.
    in_function: bool,
}

impl Visit<'_> for ForeignNames {
    fn visit_type_path(&mut self, ty: &TypePath) {
        let first = ty.path.segments.first().map(|segment| (segment.ident.to_string(), &segment.arguments));
        // A generic parameter takes no arguments: `Vec<u8>` is not one, but `Order`, `T` and `T::Item` may be.
        self.unknown |= first.is_none_or(|(name, arguments)| {
            let capital = name.starts_with(char::is_uppercase) && arguments.is_none() && name != "String";
            let rooted = ty.path.leading_colon.is_some();
            let generic =
                !rooted && (capital || (ty.path.segments.len() == 1 && !is_usual(&name) && arguments.is_none()));
            generic || ty.qself.is_some()
        });
        visit::visit_type_path(self, ty);
    }

    fn visit_type_reference(&mut self, reference: &TypeReference) {
        self.unknown |= reference.lifetime.is_none() && !self.in_function;
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &Lifetime) {
        self.unknown |= lifetime.ident != "static";
    }

    fn visit_parenthesized_generic_arguments(&mut self, arguments: &ParenthesizedGenericArguments) {
        let outside = std::mem::replace(&mut self.in_function, true);
        visit::visit_parenthesized_generic_arguments(self, arguments);
        self.in_function = outside;
    }

    fn visit_bound_lifetimes(&mut self, _: &BoundLifetimes) {
        self.unknown = true;
    }

    fn visit_expr(&mut self, expr: &Expr) {
        self.unknown |= !matches!(expr, Expr::Lit(_));
    }

    fn visit_macro(&mut self, _: &Macro) {
        self.unknown = true;
    }
}

/// Returns whether the name is a primitive type or `String`, which has the same meaning in every scope.
pub(crate) fn is_usual(name: &str) -> bool {
    const USUAL: [&str; 18] = [
        "String", "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
        "u64", "u128", "usize",
    ];
    USUAL.contains(&name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use quote::ToTokens;

    use super::*;

    fn told(ret: &str) -> Option<String> {
        let mut ret = syn::parse_str::<Type>(ret).unwrap();
        restate(&mut ret)?;
        Some(ret.into_token_stream().to_string().replace(":: core :: marker :: ", "").replace(' ', ""))
    }

    #[test]
    fn bounds_are_kept_if_a_separate_function_can_name_them() {
        for (ret, want) in [
            ("impl IntoResponse", "implIntoResponse"),
            ("impl a::B + Send + 'a + use<'a, T>", "impla::B+Send"),
            ("Result<impl A, E>", "Result<implA,implSized>"),
            ("x::Result<(u8, impl A), Vec<String>>", "x::Result<(u8,implA),Vec<String>>"),
            ("impl Fn(&str) -> u8 + 'static", "implFn(&str)->u8"),
            (
                "impl Stream<Item = Result<&'static str, std::io::Error>>",
                "implStream<Item=Result<&'staticstr,std::io::Error>>",
            ),
            ("impl Iterator<Item = impl A>", "implIterator<Item=implA>"),
            // Possible generics of the function or of the surrounding `impl`, and lifetimes.
            ("impl A<T> + B", "implB"),
            ("impl A<Self> + Iterator<Item = T::B>", "implSized"),
            ("impl A<&u8> + A<'a> + A<&'a u8> + A<'_>", "implSized"),
            ("impl A<N> + A<{ N }> + A<[u8; N]> + A<n>", "implSized"),
            ("impl for<'a> A<&'a u8> + A<<T as B>::C> + A<m!()> + ?Sized", "implSized"),
        ] {
            assert_eq!(told(ret).as_deref(), Some(want), "{ret}");
        }
        for ret in
            ["Cow<'a, impl A>", "<X<impl A> as B>::C", "[impl A; N]", "Page<impl A>", "Result<Page<impl A, N>, E>"]
        {
            assert_eq!(told(ret), None, "{ret}");
        }
    }
    #[test]
    fn types_with_possible_bounds_are_left_to_rustc() {
        for (ret, want) in [
            ("Page<impl a::B + A<T> + 'static, LIMIT>", "(impla::B,)"),
            ("Result<Page<impl A>, impl C<Item = impl D>>", "(implA,implC<Item=implD>,)"),
        ] {
            let check = check(&quote!(name), &syn::parse_str(ret).unwrap());
            let told = check.item.to_string().replace(' ', "");
            assert_eq!((told, check.takes), (format!("constfnname(_:&{want}){{}}"), false), "{ret}");
        }
    }
}
