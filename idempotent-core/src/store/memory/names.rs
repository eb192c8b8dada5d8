//! The names of the keys of a shard.
use std::collections::HashMap;
use std::sync::Arc;

/// A table of names with a count of their users. The keys of a handler have the same name, so an entry stores a number
/// instead of the text.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<NameUse>,
    free: Vec<u32>,
    /// The number that was added last. Many services have few handlers, so the next name is often the same.
    last: u32,
}

#[derive(Debug)]
struct NameUse {
    name: Arc<str>,
    users: usize,
}

impl NameTable {
    /// Adds a user of a name and returns the number of the name.
    pub(super) fn add(&mut self, name: &str) -> u32 {
        let is_last = self.names.get(self.last as usize).is_some_and(|last| last.users > 0 && *last.name == *name);
        if !is_last {
            self.last = self.numbers.get(name).copied().unwrap_or_else(|| self.insert(name));
        }
        self.names[self.last as usize].users += 1;
        self.last
    }

    fn insert(&mut self, name: &str) -> u32 {
        let name: Arc<str> = name.into();
        let added = NameUse { name: name.clone(), users: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = added;
                number
            }
            None => {
                self.names.push(added);
                self.names.len() as u32 - 1
            }
        };
        self.numbers.insert(name, number);
        number
    }

    /// Removes a user of a name, and the name after its last user.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(used) = self.names.get_mut(number as usize) else { return };
        used.users = used.users.saturating_sub(1);
        if used.users == 0 {
            self.numbers.remove(&used.name);
            self.free.push(number);
        }
    }

    pub(super) fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(|used| &*used.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_until_its_last_user_is_removed() {
        let mut names = NameTable::default();
        let [a, b] = ["a", "b"].map(|name| names.add(name));
        assert_eq!((names.add("a"), names.name(a), names.name(b)), (a, Some("a"), Some("b")));
        names.remove(a);
        assert_eq!((names.add("b"), names.add("d")), (b, 2));
        assert_eq!(names.name(a), Some("a"));
        names.remove(a);
        assert_eq!(names.add("c"), a, "the place of a name without users is used again");
        assert_eq!((names.name(a), names.name(b)), (Some("c"), Some("b")));
    }

    #[test]
    fn a_name_that_returns_as_the_last_one_has_a_number_of_its_own() {
        let mut names = NameTable::default();
        let first = names.add("a");
        names.remove(first);
        let [a, b] = ["a", "b"].map(|name| names.add(name));
        assert_eq!((names.name(a), names.name(b)), (Some("a"), Some("b")));
    }

    #[test]
    fn names_that_come_and_go_take_no_room() {
        let mut names = NameTable::default();
        for scope in 0..10_000 {
            let number = names.add(&format!("shop:mq:{scope}"));
            names.remove(number);
        }
        assert_eq!((names.names.len(), names.numbers.len(), names.free.len()), (1, 0, 1));
    }
}
