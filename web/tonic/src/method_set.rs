//! Sets of methods.
use std::collections::HashSet;

/// The methods that a setter names, as `/package.Service/Method` or `/package.Service/*`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodSet(HashSet<Box<str>>);

impl MethodSet {
    pub(crate) fn extend<M: Into<String>>(&mut self, methods: impl IntoIterator<Item = M>) {
        self.0.extend(methods.into_iter().map(|method| method.into().into_boxed_str()));
    }

    /// Returns whether the set contains the method of this path, or all methods of its service.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.has_method(path) || self.has_service(path)
    }

    /// Returns whether the set contains the method of this path.
    pub(crate) fn has_method(&self, path: &str) -> bool {
        self.0.contains(path)
    }

    /// Returns whether the set contains all methods of the service of this path.
    pub(crate) fn has_service(&self, path: &str) -> bool {
        let service = path.rsplit_once('/').filter(|_| !self.0.is_empty());
        service.is_some_and(|(service, _)| self.0.contains(&*format!("{service}/*")))
    }

    /// Returns the entries that name no method, in order.
    pub(crate) fn malformed(&self) -> Vec<&str> {
        let is_well_formed = |entry: &str| match entry.strip_prefix('/').and_then(|entry| entry.split_once('/')) {
            Some((service, method)) => !service.is_empty() && !method.is_empty() && !method.contains('/'),
            None => false,
        };
        sorted(self.0.iter().map(|entry| &**entry).filter(|entry| !is_well_formed(entry)))
    }

    /// Returns the entries that both sets have, in order.
    pub(crate) fn common<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        sorted(self.0.iter().map(|entry| &**entry).filter(|entry| other.contains(entry)))
    }
}

fn sorted<'a>(entries: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(methods: &[&str]) -> MethodSet {
        let mut set = MethodSet::default();
        set.extend(methods.iter().copied());
        set
    }

    #[test]
    fn a_set_contains_methods_and_whole_services() {
        let set = set(&["/shop.Orders/Pay", "/shop.Baskets/*"]);
        for path in ["/shop.Orders/Pay", "/shop.Baskets/Add", "/shop.Baskets/Clear"] {
            assert!(set.contains(path), "{path}");
        }
        for path in ["/shop.Orders/Find", "/Orders/Pay", "/shop.Orders", "shop.Orders/Pay", "/", "", "*"] {
            assert!(!set.contains(path), "{path}");
        }
    }

    #[test]
    fn entries_that_name_no_method_are_found() {
        let malformed = ["", "/", "//Pay", "/a/b/c", "/shop.Orders", "/shop.Orders/", "shop.Orders/Pay"];
        let all = [&malformed[..], &["/shop.Orders/Pay", "/shop.Orders/*"]].concat();
        assert_eq!(set(&all).malformed(), malformed);
    }

    #[test]
    fn an_entry_is_common_if_the_other_set_covers_it() {
        assert_eq!(set(&["/a.B/C", "/a.D/E"]).common(&set(&["/a.B/*"])), ["/a.B/C"]);
        assert_eq!(set(&["/a.B/*"]).common(&set(&["/a.B/*"])), ["/a.B/*"]);
    }
}
