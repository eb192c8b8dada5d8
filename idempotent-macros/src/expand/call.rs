//! Generated code for the call and its executor.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, FnArg, Lit, LitStr, Pat, PatType, Result, Type};

use super::at;
use crate::item::AnnotatedFunction;
use crate::names::arguments;
use crate::normalise::{AttributePlan, KeySource, OrderPosition, PolicySetter, Scene, SettingValue};
use crate::text::tidy;

/// Generates the call and its executor. The body owns both values, so it may move the arguments.
pub(super) fn setup(plan: &AttributePlan, private: &TokenStream, function: &AnnotatedFunction) -> Result<TokenStream> {
    let (call, with) = (call(plan, private, function)?, with(plan, private));
    let within = plan.transaction.iter().map(|transaction| transaction.setup(private)).collect::<TokenStream>();
    Ok(quote_spanned!(Span::mixed_site()=>
        let __idempotent_call = #call;
        let __idempotent_with = #with;
        #within
    ))
}

pub(super) fn with(plan: &AttributePlan, private: &TokenStream) -> TokenStream {
    match &plan.with {
        Some(with) => {
            let holder = borrowed(with);
            quote_spanned!(at(with)=>
                ::core::option::Option::Some(::core::clone::Clone::clone(#private::executor(#holder)))
            )
        }
        None => quote_spanned!(Span::mixed_site()=> #private::Executor::current()),
    }
}

pub(super) fn call(plan: &AttributePlan, private: &TokenStream, function: &AnnotatedFunction) -> Result<TokenStream> {
    let site = Span::mixed_site();
    let scene = match &plan.scene {
        Scene::Mq => quote_spanned!(site=> #private::Scene::Mq),
        Scene::Rest => quote_spanned!(site=> #private::Scene::Rest),
        Scene::Named(name) => quote_spanned!(site=> #private::Scene::Named(::core::convert::Into::into(#name))),
    };
    let scope = scope(plan, private);
    let argument_fingerprint = argument_fingerprint(plan, private, function)?;
    let strategy = derived(plan, private, function);
    let key = match &plan.key {
        Some(_) if strategy.is_some() => quote_spanned!(site=> &__idempotent_derived),
        Some(key) if argument_fingerprint.is_none() => borrowed(key),
        _ => quote_spanned!(site=> &#private::said(&__idempotent_said)),
    };
    let described = plan.key.as_ref().map_or_else(|| "the arguments".into(), |key| tidy(key.to_token_stream()));
    let order = plan.order.as_ref().map(order_position);
    let prefix = plan.prefix.iter();
    let tenant = plan.tenant.iter().map(borrowed);
    let fingerprint = plan.fingerprint.iter().map(|value| fingerprint_of(value, private));
    let message = plan.message.iter();
    // The call itself reports arguments that have no fingerprint.
    let set_fingerprint = argument_fingerprint.iter().map(|_| quote_spanned!(site=> .fingerprint(__idempotent_said)));
    let derived_settings = strategy.iter().map(|_| quote_spanned!(site=> .derived(__idempotent_derived)));
    let issued = issued(plan, private).into_iter();
    let policy = policy(&plan.policy_settings, private);
    // All tokens share one scope.
    let member = plan.member.iter().map(|member| format!(", `{}`", member.name));
    let declared = (!matches!(plan.by, KeySource::Token(_))).then(|| {
        quote_spanned!(site=> .__at({
            static __IDEMPOTENT_SITE: #private::Site =
                #private::Site::new(::core::concat!(::core::file!(), ":", ::core::line!() #(, #member)*));
            &__IDEMPOTENT_SITE
        }))
    });
    let declared = declared.iter();
    let call = quote_spanned!(site=>
        #private::Call::new(
            #private::Identity::new(#scene, #scope, #key)
                .described(#described)
                #(.prefix(#prefix))*
                #(.tenant(#tenant))*
        )
        #(.fingerprint(#fingerprint))*
        #(#set_fingerprint)*
        #(.issued(#issued))*
        #order
        #(.message(#message))*
        .policy(#policy)
        #(#derived_settings)*
        #(#declared)*
    );
    Ok(match (argument_fingerprint, strategy) {
        (Some(fingerprint), _) => quote_spanned!(site=> {
            let __idempotent_said = #fingerprint;
            #call
        }),
        (None, Some(derived)) => quote_spanned!(site=> {
            let __idempotent_scene = #scene;
            let __idempotent_derived = #derived;
            #call
        }),
        (None, None) => call,
    })
}

/// Generates the key that a strategy derives.
fn derived(plan: &AttributePlan, private: &TokenStream, function: &AnnotatedFunction) -> Option<TokenStream> {
    let (KeySource::Strategy(by), Some(key)) = (&plan.by, &plan.key) else { return None };
    // A parameter that is a reference is the source itself.
    let is_reference = |key: &Ident| {
        function.sig.inputs.iter().any(|input| match input {
            FnArg::Typed(PatType { pat, ty, .. }) => {
                matches!((&**pat, &**ty), (Pat::Ident(pat), Type::Reference(_)) if pat.ident == *key)
            }
            FnArg::Receiver(_) => false,
        })
    };
    let source = match key {
        Expr::Path(path) if path.path.get_ident().is_some_and(is_reference) => quote_spanned!(at(key)=> &*#key),
        key => borrowed(key),
    };
    let strategy = borrowed(by);
    let place = Span::mixed_site().located_at(at(by));
    Some(quote_spanned!(place=> #private::derive(#strategy, &__idempotent_scene, #source)))
}

/// Generates the fingerprint of the arguments, if it is the key of the call.
fn argument_fingerprint(
    plan: &AttributePlan,
    private: &TokenStream,
    function: &AnnotatedFunction,
) -> Result<Option<TokenStream>> {
    let KeySource::Param(by) = plan.by else { return Ok(None) };
    Ok(Some(match &plan.key {
        // Each part has its own fingerprint: a part may be a whole argument, which the body needs, or which has no
        // fingerprint.
        Some(Expr::Tuple(key)) => {
            let parts = key.elems.iter().map(|part| fingerprint_of(part, private));
            quote_spanned!(at(key)=> #private::arguments([#(#parts),*]))
        }
        Some(key) => fingerprint_of(key, private),
        None => {
            let arguments = arguments::of(function, plan.with.as_ref(), by)?;
            let arguments = arguments.iter().map(|name| quote_spanned!(at(name)=> #private::argument(&#name)));
            quote_spanned!(Span::mixed_site()=> #private::arguments([#(#arguments),*]))
        }
    }))
}

fn order_position(position: &OrderPosition) -> TokenStream {
    let site = Span::mixed_site();
    match position {
        OrderPosition::After(after) => {
            let after = borrowed(after);
            quote_spanned!(site=> .after(#after))
        }
        OrderPosition::Sequence(stream, number) => {
            let stream = borrowed(stream);
            quote_spanned!(site=> .sequence(#stream, #number))
        }
    }
}

/// Generates the validity of a token.
fn issued(plan: &AttributePlan, private: &TokenStream) -> Option<TokenStream> {
    let site = Span::mixed_site();
    match plan.by {
        KeySource::Token(Some(millis)) => Some(quote_spanned!(site=> #private::Duration::from_millis(#millis))),
        KeySource::Token(None) => Some(quote_spanned!(site=> #private::Tokens::TTL)),
        KeySource::Key | KeySource::Param(_) | KeySource::Strategy(_) => None,
    }
}

/// Borrows the expression, or each part of a tuple, because the body may move them. A literal gets no parentheses,
/// because some lints reject them.
fn borrowed(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Tuple(tuple) if !tuple.elems.is_empty() => {
            let parts = tuple.elems.iter().map(borrowed);
            quote_spanned!(at(expr)=> &(#(#parts,)*))
        }
        Expr::Reference(_)
        | Expr::Lit(_)
        | Expr::Path(_)
        | Expr::Field(_)
        | Expr::MethodCall(_)
        | Expr::Call(_)
        | Expr::Tuple(_) => {
            quote_spanned!(at(expr)=> &#expr)
        }
        _ => quote_spanned!(at(expr)=> &(#expr)),
    }
}

fn fingerprint_of(value: &Expr, private: &TokenStream) -> TokenStream {
    let borrowed = borrowed(value);
    quote_spanned!(at(value)=> #private::fingerprint(#borrowed))
}

/// Generates the scope: the path of the function, as the compiler prints it for a closure inside the function.
///
/// `module_path!` would be equal for two impls in one module. The name of `Self` would be equal for two traits of one
/// type.
fn scope(plan: &AttributePlan, private: &TokenStream) -> TokenStream {
    match &plan.scope {
        Some(scope) => match plan.member.as_ref().filter(|_| !matches!(plan.by, KeySource::Token(_))) {
            Some(member) if member.inherited.contains(&"scope") => scope_of_member(scope, &member.name),
            _ => quote!(#scope),
        },
        // The issuer of a token need not know the handler.
        None if matches!(plan.by, KeySource::Token(_)) => quote_spanned!(Span::mixed_site()=> #private::Tokens::SCOPE),
        None => quote_spanned!(Span::mixed_site()=> #private::scope_of(&|| ())),
    }
}

/// Generates the scope of one function of a block. With a shared scope, a key of one function would be a duplicate of the
/// same key of another function.
fn scope_of_member(scope: &Expr, name: &str) -> TokenStream {
    match scope {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let scope = LitStr::new(&format!("{}.{name}", text.value()), text.span());
            quote!(#scope)
        }
        scope => {
            let form = format!("{{}}.{name}");
            quote_spanned!(at(scope)=> ::std::format!(#form, #scope))
        }
    }
}

/// Generates the policy as a constant.
fn policy(policy_settings: &[PolicySetter], private: &TokenStream) -> TokenStream {
    let site = Span::mixed_site();
    let set = policy_settings.iter().map(|PolicySetter { setter, setting }| {
        let setter = Ident::new(setter, site);
        let value = match setting {
            SettingValue::Millis(millis) => quote_spanned!(site=> #private::Duration::from_millis(#millis)),
            SettingValue::Forever => quote_spanned!(site=> #private::Policy::FOREVER),
            SettingValue::Window => quote_spanned!(site=> #private::Policy::WINDOW),
            SettingValue::Count(expr) => count(expr),
            SettingValue::Bytes(bytes) => quote_spanned!(site=> #bytes),
            SettingValue::Word(of, variant) => {
                let (of, variant) = (Ident::new(of, site), Ident::new(variant, site));
                quote_spanned!(site=> #private::#of::#variant)
            }
            SettingValue::Wait(millis) => {
                quote_spanned!(site=> #private::OnInFlight::Wait(#private::Duration::from_millis(#millis)))
            }
            SettingValue::BrokenOrder(variant, millis) => {
                let variant = Ident::new(variant, site);
                quote_spanned!(site=> #private::OnBrokenOrder::#variant(#private::Duration::from_millis(#millis)))
            }
            SettingValue::Yes => quote_spanned!(site=> true),
        };
        quote_spanned!(site=> .#setter(#value))
    });
    quote_spanned!(site=> const { #private::Policy::new() #(#set)* })
}

/// Adds a suffix to a number without one, because a lint demands it.
fn count(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
            match number.base10_parse::<u32>() {
                Ok(number) => quote_spanned!(at(expr)=> #number),
                Err(_) => quote!(#expr),
            }
        }
        _ => quote!(#expr),
    }
}
