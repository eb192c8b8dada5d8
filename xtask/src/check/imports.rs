//! Import circles: files of a crate that import each other.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemUse, UseTree, Visibility};

use super::sources::{CRATES, texts};
use crate::report::Findings;

/// The largest circle that passes: a builder and the type that it builds.
const LARGEST: usize = 2;

pub(super) fn circles() -> Findings {
    let mut found = Vec::new();
    for root in CRATES {
        let mut files = Files::new();
        for (path, text) in texts(|path| path.starts_with(root) && path.extension().is_some_and(|end| end == "rs"))? {
            let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            files.insert(module(path.strip_prefix(root)?), Imports::of(&file));
        }
        for circle in large_circles(&files) {
            let (number, names) = (circle.len(), circle.into_iter().collect::<Vec<_>>().join(", "));
            found.push(format!("{root}: a circle of {number} files, limit {LARGEST}: {names}"));
        }
    }
    Ok(found)
}

/// Returns the path of a file's module, such as `crate::key::part`.
fn module(path: &Path) -> String {
    let parts = path.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy()).filter(|part| part != "lib" && part != "mod");
    parts.fold("crate".to_owned(), |module, part| format!("{module}::{part}"))
}

/// The imports of each file, by the path of its module.
type Files = BTreeMap<String, Imports>;

/// The imports of one file, without those of its tests.
#[derive(Default)]
struct Imports {
    /// Paths of `use` items that are not re-exports, and paths in code that start with `crate` or `super`.
    used: Vec<String>,
    /// Re-exported names with their paths.
    reexported: BTreeMap<String, String>,
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
fn flatten(tree: &UseTree, prefix: &str, names: &mut Vec<(String, String)>) {
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &format!("{prefix}{}::", path.ident), names),
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, names)),
        UseTree::Glob(_) => names.push(("*".to_owned(), format!("{prefix}*"))),
        UseTree::Name(name) => names.push((name.ident.to_string(), format!("{prefix}{}", name.ident))),
        UseTree::Rename(rename) => names.push((rename.rename.to_string(), format!("{prefix}{}", rename.ident))),
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
        flatten(&import.tree, "", &mut names);
        let is_used = |name: &str| name == "*" || matches!(import.vis, Visibility::Inherited);
        let (used, reexported): (Vec<_>, Vec<_>) = names.into_iter().partition(|(name, _)| is_used(name));
        self.used.extend(used.into_iter().map(|(_, path)| path));
        self.reexported.extend(reexported);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 && ["crate", "super"].contains(&parts[0].as_str()) {
            self.used.push(parts.join("::"));
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
fn large_circles(files: &Files) -> BTreeSet<BTreeSet<&str>> {
    let reached: BTreeMap<_, _> = files.keys().map(|from| (from.as_str(), reachable(files, from))).collect();
    let circle = |(from, all): (&&str, &BTreeSet<_>)| -> BTreeSet<&str> {
        all.iter().copied().filter(|to: &&str| reached[to].contains(from)).collect()
    };
    reached.iter().map(circle).filter(|circle| circle.len() > LARGEST).collect()
}

/// Returns the files that a file imports, and the files that these import.
fn reachable<'f>(files: &'f Files, from: &'f str) -> BTreeSet<&'f str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let imported = files[module].used.iter().filter_map(|path| resolve(files, module, path, 0));
        next.extend(imported.filter(|to| *to != module && reached.insert(*to)));
    }
    reached
}

/// Returns the file that a path leads to, through re-exports.
fn resolve<'f>(files: &'f Files, from: &str, path: &str, depth: u8) -> Option<&'f str> {
    let (mut module, mut rest) = (from, path.strip_prefix("self::").unwrap_or(path));
    while let Some(outer) = rest.strip_prefix("super::") {
        (module, rest) = (module.rsplit_once("::")?.0, outer);
    }
    let is_absolute = path.starts_with("crate::");
    let full = if is_absolute { path.to_owned() } else { format!("{module}::{rest}") };
    let mut ends = [full.len()].into_iter().chain(full.rmatch_indices("::").map(|(at, _)| at));
    let (file, imports) = ends.find_map(|end| files.get_key_value(&full[..end]))?;
    if !is_absolute && rest == path && file == from {
        // The first name is that of another crate, unless it is that of a module.
        return None;
    }
    let name = full[file.len()..].trim_start_matches("::").split("::").next()?;
    // Chains of re-exports are short. The limit ends a re-export of itself.
    let reexported = imports.reexported.get(name).filter(|_| depth < 6);
    reexported.and_then(|path| resolve(files, file, path, depth + 1)).or(Some(file))
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
