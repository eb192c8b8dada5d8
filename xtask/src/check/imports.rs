//! Import circles: files of a crate that import each other.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemUse, UseTree, Visibility};

use super::sources::{CRATES, texts};
use crate::report::Findings;

/// The largest circle that passes: a builder and the type that it builds.
const LARGEST: usize = 2;

/// The path of a module within its crate.
type Module = Vec<String>;

pub(super) fn circles() -> Findings {
    let mut found = Vec::new();
    for root in CRATES {
        let mut files = BTreeMap::new();
        for (path, text) in texts(|path| path.starts_with(root) && path.extension().is_some_and(|end| end == "rs"))? {
            let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            files.insert(module(path.strip_prefix(root)?), Imports::of(&file));
        }
        for circle in large_circles(&files) {
            let names: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
            found.push(format!("{root}: a circle of {} files, limit {LARGEST}: {}", names.len(), names.join(", ")));
        }
    }
    Ok(found)
}

fn module(path: &Path) -> Module {
    let mut parts: Module = path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "lib" || last == "mod") {
        parts.pop();
    }
    parts
}

/// The imports of one file, without those of its tests.
#[derive(Default)]
struct Imports {
    /// Paths of `use` items that are not re-exports, and paths in code that start with `crate` or `super`.
    used: Vec<Module>,
    /// Re-exported names with their paths.
    reexported: BTreeMap<String, Module>,
    /// Identifiers in the file outside of `use` items.
    named: BTreeSet<String>,
}

impl Imports {
    fn of(file: &syn::File) -> Self {
        let mut imports = Self::default();
        imports.visit_file(file);
        // The file's own code may use what it re-exports.
        let in_code = imports.reexported.iter().filter(|(name, _)| imports.named.contains(*name));
        imports.used.extend(in_code.map(|(_, path)| path.clone()).collect::<Vec<_>>());
        imports
    }
}

/// Adds the names that a `use` item imports, with their paths. A glob has the name `*`.
fn flatten(tree: &UseTree, prefix: &Module, names: &mut Vec<(String, Module)>) {
    let joined = |name: &Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<Module>();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &joined(&path.ident), names),
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, names)),
        UseTree::Glob(_) => names.push(("*".to_owned(), prefix.clone())),
        UseTree::Name(name) => names.push((name.ident.to_string(), joined(&name.ident))),
        UseTree::Rename(rename) => names.push((rename.rename.to_string(), joined(&rename.ident))),
    }
}

impl Visit<'_> for Imports {
    fn visit_item(&mut self, item: &Item) {
        let attributes: &[Attribute] = match item {
            // A declaration `mod name;` is neither an import nor a use of the name.
            Item::Mod(module) if module.content.is_none() => return,
            Item::Mod(module) => &module.attrs,
            Item::Use(import) => &import.attrs,
            Item::Fn(function) => &function.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &ItemUse) {
        let mut names = Vec::new();
        flatten(&import.tree, &Module::new(), &mut names);
        let is_used = |name: &str| name == "*" || matches!(import.vis, Visibility::Inherited);
        let (used, reexported): (Vec<_>, Vec<_>) = names.into_iter().partition(|(name, _)| is_used(name));
        self.used.extend(used.into_iter().map(|(_, path)| path));
        self.reexported.extend(reexported);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Module = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 && ["crate", "super"].contains(&parts[0].as_str()) {
            self.used.push(parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_ident(&mut self, ident: &Ident) {
        self.named.insert(ident.to_string());
    }

    /// Skips `pub(in …)`, whose path is no import.
    fn visit_visibility(&mut self, _: &Visibility) {}
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}

/// Returns the circles of more than [`LARGEST`] files.
fn large_circles(files: &BTreeMap<Module, Imports>) -> Vec<BTreeSet<&Module>> {
    let edges: BTreeMap<_, BTreeSet<_>> = files
        .iter()
        .map(|(from, imports)| {
            let to = imports.used.iter().filter_map(|path| resolve(files, from, path, 0)).filter(|to| *to != from);
            (from, to.collect())
        })
        .collect();
    let reached: BTreeMap<_, _> = files.keys().map(|from| (from, reachable(&edges, from))).collect();
    let mut circles = BTreeSet::new();
    for (from, all) in &reached {
        let circle: BTreeSet<_> = all.iter().copied().filter(|to| reached[to].contains(from)).collect();
        if circle.len() > LARGEST {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable<'a>(edges: &BTreeMap<&'a Module, BTreeSet<&'a Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(edges[module].iter().copied().filter(|to| reached.insert(*to)));
    }
    reached
}

/// Returns the file that a path leads to, through re-exports.
fn resolve<'a>(
    files: &'a BTreeMap<Module, Imports>,
    from: &[String],
    path: &[String],
    depth: u8,
) -> Option<&'a Module> {
    let first = path.first()?.as_str();
    let starts = path.iter().take_while(|part| ["crate", "self", "super"].contains(&part.as_str())).count();
    let mut base = if first == "crate" { Module::new() } else { from.to_vec() };
    if starts == 0 && !files.contains_key(&[from, &path[..1]].concat()) {
        return None;
    }
    base.truncate(base.len() - path[..starts].iter().filter(|part| *part == "super").count().min(base.len()));
    let mut rest = &path[starts..];
    while let [first, inner @ ..] = rest
        && files.contains_key(&[&base[..], std::slice::from_ref(first)].concat())
    {
        base.push(first.clone());
        rest = inner;
    }
    let (module, imports) = files.get_key_value(&base)?;
    // Chains of re-exports are short. The limit ends a re-export of itself.
    let reexported = rest.first().and_then(|name| imports.reexported.get(name)).filter(|_| depth < 6);
    reexported.and_then(|path| resolve(files, module, path, depth + 1)).or(Some(module))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<usize> {
        let parse =
            |(path, text): &(&str, &str)| (module(Path::new(path)), Imports::of(&syn::parse_file(text).unwrap()));
        let files = files.iter().map(parse).collect();
        large_circles(&files).iter().map(BTreeSet::len).collect()
    }

    #[test]
    fn a_circle_of_three_files_is_found_through_reexports_and_paths() {
        let lib = ("lib.rs", "mod a; mod b; pub use self::a::A; pub use self::b::B;");
        let a = ("a.rs", "mod inner; use crate::B; pub struct A(B);");
        let b = ("b.rs", "pub struct B; fn f() { crate::a::inner::g() }");
        assert_eq!(circles(&[lib, a, b, ("a/inner.rs", "use super::A;")]), [3]);
        assert_eq!(circles(&[lib, a, ("b.rs", "use crate::A; pub struct B;")]), [0; 0]);
    }

    #[test]
    fn imports_of_tests_and_visibilities_are_no_edges() {
        let lib = ("lib.rs", "mod a; mod b; mod c;");
        let a = ("a.rs", "use crate::b::B;");
        let b = ("b.rs", "use crate::c::C; pub(in crate::a) struct B;");
        let c = ("c.rs", "pub struct C; #[cfg(test)] mod tests { use crate::a::A; }");
        assert_eq!(circles(&[lib, a, b, c]), [0; 0]);
        assert_eq!(circles(&[lib, a, b, ("c.rs", "pub struct C; mod inner { use crate::a::A; }")]), [3]);
    }
}
