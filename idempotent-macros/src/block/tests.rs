#![allow(clippy::unwrap_used)]
use super::*;

/// Returns the errors of the attribute on a block, or the expansion.
fn expanded(args: &str, block: &str) -> std::result::Result<String, String> {
    let mut block: AnnotatedBlock = syn::parse_str(block).map_err(|error: Error| error.to_string())?;
    match expand(&args.parse().unwrap(), &mut block) {
        Ok(()) => Ok(block.into_token_stream().to_string()),
        Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>().join(" | ")),
    }
}

#[test]
fn each_async_function_is_protected_and_nothing_more() {
    let block = "impl<const N: usize> Trait<{ 1 }> for S<N> { #![allow(x)] const A: u8 = 1; type T = u8; fn new() -> Self { S } \
                 #[idempotent(skip)] async fn plain(&self) {} async fn run(&self, id: u8) -> R { 1 } \
                 #[idempotent(key = other)] #[inline] async fn own(&self, other: u8) -> R { 2 } }";
    let text = expanded("key = id", block).unwrap();
    assert_eq!(text.matches("let __idempotent_call =").count(), 2, "{text}");
    for left in
        ["# ! [allow (x)]", "const A : u8 = 1 ;", "type T = u8 ;", "fn new () -> Self { S }", "# [inline] async fn own"]
    {
        assert!(text.contains(left), "{left}: {text}");
    }
    assert!(text.contains("async fn plain (& self) { }"), "{text}");
    assert!(!text.contains("# [idempotent"), "{text}");
}

#[test]
fn a_shared_scope_ends_in_the_name_of_the_function() {
    let block = "impl S { async fn run(id: u8) -> R { 1 } #[idempotent(scope = \"own\")] async fn own(id: u8) -> R { 1 } \
                 async fn r#loop(id: u8) -> R { 1 } }";
    let text = expanded("key = id, scope = \"s\"", block).unwrap();
    for scope in ["\"s.run\"", "\"own\"", "\"s.loop\""] {
        assert!(text.contains(scope), "{scope}: {text}");
    }
    let text = expanded("key = id, scope = Self::NAME", "impl S { async fn run(id: u8) -> R { 1 } }").unwrap();
    assert!(text.contains("format ! (\"{}.run\" , Self :: NAME)"), "{text}");
    // A token is issued for a scope, and not for a function.
    let tokens = "by = token, key = id, tenant = id, scope = \"s\"";
    let text = expanded(tokens, "impl S { async fn run(id: u8) -> R { 1 } }").unwrap();
    assert!(text.contains("\"s\"") && !text.contains("\"s.run\""), "{text}");
}

#[test]
fn arguments_that_exclude_an_argument_of_the_function_are_not_inherited() {
    for (shared, own) in [
        ("key = id, retain = \"1h\", fingerprint = id", "by = param"),
        ("by = param, window = \"1s\", replay", "by = key, key = id"),
        ("key = id, sequence = (id, n), on_late = run", "after = n"),
        ("key = id, after = n", "sequence = (id, n)"),
    ] {
        let block = format!("impl S {{ #[idempotent({own})] async fn run(id: u8, n: u64) -> R {{ 1 }} }}");
        assert!(expanded(shared, &block).is_ok(), "{shared}: {own}: {:?}", expanded(shared, &block));
    }
}

#[test]
fn each_mistake_is_an_error() {
    for (shared, block, want) in [
        ("key = id", "impl S {}", "this block contains no `async fn`"),
        ("key = id", "impl S { #[idempotent(skip)] async fn f(id: u8) {} }", "this block contains no `async fn`"),
        ("key = id", "impl S { async fn f(other: u8) {} }", "`f` inherits `key` from the attribute on its block"),
        ("key = a, transaction = tx", "impl S { async fn f(a: u8) {} }", "`f` inherits `transaction` from"),
        ("key = id, leese = x", "impl S { async fn f(id: u8) {} }", "unknown argument `leese`"),
        ("key = id", "impl S { fn f() -> BoxFuture<'static, ()> { x() } }", "write `async fn f`"),
        ("key = id", "trait T { fn f(&self) -> impl Future<Output = ()> + Send; }", "`f` has no body here"),
        ("key = id", "trait T { #[idempotent(key = a)] fn f(&self); }", "`f` has no body here"),
        ("key = id", "impl S { m! { a } }", "functions that this macro expands to"),
        ("key = id", "impl S { #[idempotent = 1] async fn f(id: u8) {} }", "expected"),
        (
            "key = id",
            "impl S { #[idempotent(skip, key = a)] async fn f(id: u8) {} }",
            "`skip` takes no other arguments",
        ),
    ] {
        let error = expanded(shared, block).err().unwrap_or_default();
        assert!(error.contains(want), "{block}: {error}");
    }
    let twice = "impl S { async fn f(id: u8) {} async fn g(id: u8) {} }";
    let error = expanded("key = id, scene = rset", twice).unwrap_err();
    assert_eq!(error.matches("unknown scene").count(), 1, "{error}");
    // A macro whose functions need no protection is unchanged, including its other attributes.
    let block = "impl S { #[idempotent(skip)] #[cfg(x)] m! { a } async fn f(id: u8) -> R { 1 } }";
    assert!(expanded("key = id", block).unwrap().contains("# [cfg (x)] m ! { a }"));
}
