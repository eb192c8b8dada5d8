#![allow(clippy::unwrap_used)]
use super::*;

fn error(args: &str, function: &str) -> String {
    let plan = AttributePlan::new(syn::parse_str(args).unwrap()).unwrap();
    let function = AnnotatedFunction::of(function.parse().unwrap()).unwrap();
    check(&plan, &function).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn an_unknown_name_is_refused_with_a_list_of_the_arguments() {
    let free = "async fn f(order: Order, (a, B { c, .. }): X) {}";
    for (args, want) in [
        ("key = msg.id", "no argument named `msg`\navailable: `order`, `a`, `c`"),
        ("key = (a, &oder.id)", "no argument named `oder`; did you mean `order`?"),
        ("key = f(msg)", "no argument named `msg`"),
        ("key = a, tenant = user", "no argument named `user`"),
        ("key = a, fingerprint = [body]", "no argument named `body`"),
        ("key = self.id", "no `self` here: `f` has no receiver"),
        ("key = a, scope = billing", "`scope` is text in quotes: `scope = \"billing\"`"),
        ("key = a, prefix = shop", "`prefix` is text in quotes: `prefix = \"shop\"`"),
        ("key = a, message = &wait", "`message` is text in quotes: `message = \"wait\"`"),
        ("key = a, scope = ordre", "`scope = \"ordre\"`; did you mean `order`?"),
        ("key = a, scope = c", "`scope` must not depend on the call"),
        ("key = a, scope = (&c)", "`key = (…, c)`, or is the `tenant`"),
        ("key = a?", "Leave it out: an `Option` can be part of `key`"),
    ] {
        let error = error(args, free);
        assert!(error.contains(want), "{args}: {error}");
    }
    let text = error("key = id", "async fn f(&self) {}");
    assert_eq!(text, "no argument named `id`; for a field say `self.id`\navailable: `self`");
    assert_eq!(error("key = id", "async fn f() {}"), "no argument named `id`\navailable: none");
}

#[test]
fn a_key_of_literals_is_refused_with_a_suggestion() {
    let free = "async fn f(order: Order, (a, B { c, .. }): X) {}";
    for (key, meant) in [
        ("\"order.id\"", "order.id"),
        ("\"#order.id\"", "order.id"),
        ("\"${order.id}\"", "order.id"),
        ("(&\"order.lines[0].id()\").to_string()", "order.lines[0].id()"),
        ("(\"a\", \"c.id\")", "(a, c.id)"),
        ("(\"a\", 1)", "(a, 1)"),
    ] {
        let want = format!("this is one key for all calls; did you mean `key = {meant}`?");
        assert_eq!(error(&format!("key = {key}"), free), want);
    }
    for key in ["1", "1u8", "-1", "true", "'c'", "b\"x\"", "\"msg.id\"", "\"self.id\"", "(1, \"x\")", "[1u8; 4]"] {
        let error = error(&format!("key = {key}"), free);
        assert!(
            error.contains("deliberate singleton write `key = const { … }`\navailable: `order`, `a`, `c`"),
            "{key}: {error}"
        );
    }
    let method = error("key = \"self.id\"", "async fn f(&self) {}");
    assert!(method.contains("did you mean `key = self.id`?"), "{method}");
    for key in ["(a, \"part\")", "(ONE, a)", "format!(\"{a}\")", "\"a\".join(c)"] {
        assert_eq!(error(&format!("key = {key}"), free), "", "{key}");
    }
}

#[test]
fn a_key_that_names_no_argument_is_refused() {
    let free = "async fn f(order: Order, (a, B { c, .. }): X) {}";
    for key in ["ONE", "(ONE, 1)", "process::id()", "format!(\"x\")", "format!(\"{}-{x}\", ONE)", "today().day()"] {
        let error = error(&format!("key = {key}"), free);
        assert!(
            error.contains("this key names no argument") && error.contains("e.g. `key = (order, …)`"),
            "{key}: {error}"
        );
    }
    for key in
        ["format!(\"{a:?}\")", "concat(format!(\"{}\", order.id))", "{ let x = c; x }", "hash(&[a])", "f!(order)"]
    {
        assert_eq!(error(&format!("key = {key}"), free), "", "{key}");
    }
    assert_eq!(error("key = const { ONE }", free), "");
    assert_eq!(error("key = self.id", "async fn f(&self) {}"), "");
    assert_eq!(error("key = format!(\"{}\", self.id)", "async fn f(&self) {}"), "");
    let none = error("key = ONE", "async fn f() {}");
    assert!(
        none.contains("all calls would share one key: name one. A value") && none.ends_with("available: none"),
        "{none}"
    );
}

#[test]
fn a_return_in_an_argument_is_refused() {
    let free = "async fn f(order: Order, a: u8) {}";
    for key in ["{ if a > 1 { return Ok(()) } order.id }", "match order.id { Some(id) => id, None => return Ok(()) }"] {
        let error = error(&format!("key = {key}"), free);
        assert!(error.contains("`return` in `key` would end the call before anything is claimed"), "{key}: {error}");
    }
    assert!(error("key = a, tenant = return x", free).contains("`return` in `tenant`"));
    assert_eq!(error("key = order.ids.iter().find(|id| return **id > a)", free), "");
}

#[test]
fn names_that_may_be_in_scope_are_left_to_rustc() {
    for args in [
        "key = (order.id, CONST, Unit, module::name, S { a }, format!(\"{nowhere}\"))",
        "key = order.tags.iter().map(|tag| tag.id).find(normalise)",
        "key = key_hash(order.body)",
        "key = { let x = order.id; x }",
        "key = match a { Some(b) => b, None => c }",
        "key = { fn inner(d: u8) -> u8 { d } inner(c) }",
        "key = a.map(|x| x.y()?)",
        "key = r#a, with = app.executor()?",
        "key = a, scope = SCOPE, prefix = c, message = a.text()",
        "key = a, scope = app.group",
        "key = n",
    ] {
        let text = error(args, "async fn f<const n: usize>(order: Order, app: App, (a, B { c, .. }): X) {}");
        assert_eq!(text, "", "{args}");
    }
    assert_eq!(error("key = unknown", "async fn f(m!(x): X) {}"), "");
}
