//! Tests that macros create: functions whose names a test macro lists, and `#[test]` functions in the input of a macro.
use std::collections::BTreeSet;
use std::iter::Peekable;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ItemMacro;

/// The macros of all files, and the functions that macros may turn into tests.
#[derive(Default)]
pub(super) struct Macros {
    /// The module and the name of each function that is not a test itself.
    functions: BTreeSet<(String, String)>,
    definitions: Vec<Macro>,
    calls: Vec<Macro>,
}

/// A definition or a call of a macro at the level of items.
struct Macro {
    module: String,
    name: String,
    tokens: TokenStream,
}

/// A name in a list, with the module in front of it: `leases::a_lease_ends`.
type Listed = (Option<String>, String);

impl Macros {
    pub(super) fn add_function(&mut self, module: &str, name: &Ident) {
        self.functions.insert((module.to_owned(), name.to_string()));
    }

    pub(super) fn add(&mut self, module: &str, item: &ItemMacro) {
        let (list, name) = match &item.ident {
            Some(name) => (&mut self.definitions, Some(name)),
            None => (&mut self.calls, item.mac.path.segments.last().map(|last| &last.ident)),
        };
        if let Some(name) = name {
            list.push(Macro { module: module.to_owned(), name: name.to_string(), tokens: item.mac.tokens.clone() });
        }
    }

    /// Returns the paths of the functions that macros turn into tests.
    pub(super) fn tests(&self) -> BTreeSet<String> {
        let test_macros = self.test_macros();
        let mut tests = BTreeSet::new();
        for call in &self.calls {
            let written = test_functions(&call.tokens);
            tests.extend(written.into_iter().map(|name| format!("{}::{name}", call.module)));
            if test_macros.contains(&self.scope(&call.module, &call.name)) {
                tests.extend(self.paths(&call.module, &call.tokens, Some(&call.module)));
            }
        }
        // A list macro hands its names to the macro that it is called with.
        for list in &self.definitions {
            if self.receives_test_macro(list, &test_macros) {
                tests.extend(self.paths(&list.module, &list.tokens, None));
            }
        }
        tests
    }

    /// Returns the package that defines the macro, with its name. A macro of the own package precedes others.
    fn scope(&self, module: &str, name: &str) -> (String, String) {
        let mut of_name = self.definitions.iter().filter(|definition| definition.name == name);
        let own = of_name.clone().find(|definition| package(&definition.module) == package(module));
        let of = own.or_else(|| of_name.next()).map_or("", |definition| package(&definition.module));
        (of.to_owned(), name.to_owned())
    }

    /// Returns the macros that expand to tests, by themselves or by another macro.
    fn test_macros(&self) -> BTreeSet<(String, String)> {
        let mut known = BTreeSet::new();
        loop {
            let before = known.len();
            for Macro { module, name, tokens } in &self.definitions {
                let by_another = || called(tokens).iter().any(|(name, _)| known.contains(&self.scope(module, name)));
                if has_test_attribute(tokens) || by_another() {
                    known.insert((package(module).to_owned(), name.clone()));
                }
            }
            if known.len() == before {
                return known;
            }
        }
    }

    /// Returns whether the macro is called with the name of a test macro of its package.
    fn receives_test_macro(&self, list: &Macro, test_macros: &BTreeSet<(String, String)>) -> bool {
        let own = package(&list.module);
        let has_test_macro = |tokens: &TokenStream| {
            names(tokens).iter().any(|(_, name)| test_macros.contains(&(own.to_owned(), name.clone())))
        };
        let calls = self.calls.iter().filter(|call| package(&call.module) == own && call.name == list.name);
        let in_definitions = self.definitions.iter().filter(|definition| package(&definition.module) == own);
        calls.into_iter().any(|call| has_test_macro(&call.tokens))
            || in_definitions
                .flat_map(|definition| called(&definition.tokens))
                .any(|(name, input)| name == list.name && has_test_macro(&input))
    }

    /// Returns the functions of the package that the tokens list. A name without a module is a function of `module`, or of
    /// any module without one.
    fn paths(&self, from: &str, tokens: &TokenStream, module: Option<&str>) -> Vec<String> {
        let listed = names(tokens);
        let is_listed = |(of, name): &&(String, String)| {
            package(of) == package(from)
                && listed.iter().any(|(place, listed)| {
                    listed == name
                        && match (place, module) {
                            (Some(place), _) => of.ends_with(&format!("::{place}")),
                            (None, Some(module)) => of == module,
                            (None, None) => true,
                        }
                })
        };
        self.functions.iter().filter(is_listed).map(|(of, name)| format!("{of}::{name}")).collect()
    }
}

fn package(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Calls the function with each stream of tokens, from outer to inner.
fn each_stream(tokens: &TokenStream, f: &mut impl FnMut(&[TokenTree])) {
    let list: Vec<_> = tokens.clone().into_iter().collect();
    f(&list);
    for token in &list {
        if let TokenTree::Group(group) = token {
            each_stream(&group.stream(), f);
        }
    }
}

/// Returns whether the tokens are an attribute with the name: `#[test]` and `#[tokio::test(…)]` are named `test`.
fn is_attribute(tokens: &[TokenTree], name: &str) -> bool {
    let [sign, TokenTree::Group(group)] = tokens else { return false };
    let is_path = |token: &TokenTree| matches!(token, TokenTree::Ident(_)) || is_punct(Some(token), ':');
    is_punct(Some(sign), '#')
        && group.delimiter() == Delimiter::Bracket
        && group.stream().into_iter().take_while(is_path).last().is_some_and(|last| last.to_string() == name)
}

fn has_test_attribute(tokens: &TokenStream) -> bool {
    let mut has = false;
    each_stream(tokens, &mut |list| {
        has |= list.windows(2).any(|pair| is_attribute(pair, "test"));
    });
    has
}

/// Returns the names of `#[test]` functions that are written in the tokens. Ignored tests are left out.
fn test_functions(tokens: &TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    each_stream(tokens, &mut |list| {
        let (mut is_test, mut is_ignored) = (false, false);
        for pair in list.windows(2) {
            is_test |= is_attribute(pair, "test");
            is_ignored |= is_attribute(pair, "ignore");
            if let [TokenTree::Ident(word), TokenTree::Ident(name)] = pair
                && word == "fn"
                // Both flags are reset for the next function.
                && std::mem::take(&mut is_test) & !std::mem::take(&mut is_ignored)
            {
                found.push(name.to_string());
            }
        }
    });
    found
}

/// Returns the macros that the tokens call, with their input.
fn called(tokens: &TokenStream) -> Vec<(String, TokenStream)> {
    let mut found = Vec::new();
    each_stream(tokens, &mut |list| {
        for call in list.windows(3) {
            if let [TokenTree::Ident(name), sign, TokenTree::Group(input)] = call
                && is_punct(Some(sign), '!')
            {
                found.push((name.to_string(), input.stream()));
            }
        }
    });
    found
}

/// Returns the names in the tokens. A variable and the name of a called function are no names of a list.
fn names(tokens: &TokenStream) -> Vec<Listed> {
    let mut found = Vec::new();
    each_stream(tokens, &mut |list| {
        let mut rest = list.iter().peekable();
        let mut before = None;
        while let Some(token) = rest.next() {
            if let TokenTree::Ident(name) = token
                && !is_punct(before, '$')
            {
                found.extend(name_at(name, &mut rest));
            }
            before = Some(token);
        }
    });
    found
}

/// Reads the rest of a path, and returns its last name with the one in front of it.
fn name_at<'t>(first: &Ident, rest: &mut Peekable<impl Iterator<Item = &'t TokenTree>>) -> Option<Listed> {
    let (mut place, mut name) = (None, first.to_string());
    while is_punct(rest.peek().copied(), ':') {
        rest.next();
        if !is_punct(rest.peek().copied(), ':') {
            break;
        }
        rest.next();
        let Some(TokenTree::Ident(next)) = rest.peek().copied() else { break };
        place = Some(std::mem::replace(&mut name, next.to_string()));
        rest.next();
    }
    let is_call = matches!(rest.peek(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    (!is_call && !is_punct(rest.peek().copied(), '!')).then_some((place, name))
}

#[cfg(test)]
mod tests {
    use crate::check::cases::index::Tests;

    const TO_TESTS: &str =
        "macro_rules! on_each { ($($name:ident)*) => { mod a { $(#[test] fn $name() { super::$name(run()) })* } }; }";

    fn has(tests: &Tests, expected: &[&str], missing: &[&str]) {
        for path in expected {
            assert!(tests.contains(path), "{path} is missing in {tests:?}");
        }
        for path in missing {
            assert!(!tests.contains(path), "{path} is in {tests:?}");
        }
    }

    #[test]
    fn a_function_that_a_test_macro_lists_is_a_test() {
        let text = "on_each! { shown other::elsewhere } other! { off } on_each! { helper() } \
            fn shown() {} fn off() {} fn helper() {} fn elsewhere() {} mod inner { fn shown() {} }";
        let tests = Tests::of([
            ("tests/suite/macros.rs", TO_TESTS),
            ("tests/suite/a.rs", text),
            ("tests/suite/other.rs", "macro_rules! other { ($a:ident) => {}; } fn elsewhere() {}"),
        ]);
        has(
            &tests,
            &["p::suite::a::shown", "p::suite::other::elsewhere"],
            &["p::suite::a::off", "p::suite::a::helper", "p::suite::a::elsewhere", "p::suite::a::inner::shown"],
        );
    }

    #[test]
    fn a_function_in_a_list_that_a_test_macro_receives_is_a_test() {
        let list = "macro_rules! laws { ($then:ident) => { $then! { a_law place::b_law } }; } \
            macro_rules! kept { ($name:ident) => { mod $name { laws! { law_tests } } }; } \
            macro_rules! law_tests { ($($law:ident)*) => { $(law_test! { $law })* }; } \
            macro_rules! law_test { ($law:ident) => { #[tokio::test(flavor = \"x\")] async fn $law() {} }; }";
        let unused = "macro_rules! unused { ($then:ident) => { $then! { c_law } }; }";
        let laws = "pub fn a_law() {} fn b_law() {} fn c_law() {}";
        let tests = Tests::of([("src/list.rs", list), ("src/unused.rs", unused), ("src/place.rs", laws)]);
        has(&tests, &["p::place::a_law", "p::place::b_law"], &["p::place::c_law"]);
    }

    #[test]
    fn a_test_in_the_input_of_a_macro_is_a_test() {
        let text = "proptest! { #[test] fn shown(a in 0..9) { let f = 1; } fn helper() {} \
            #[test] #[ignore = \"slow\"] fn off() {} #[cfg(test)] fn also_helper() {} }";
        let missing = ["p::a::helper", "p::a::off", "p::a::also_helper"];
        has(&Tests::of([("src/a.rs", text)]), &["p::a::shown"], &missing);
    }
}
