//! The source locations of `#[idempotent]` attributes. Two attributes with one scope are most likely a mistake.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::Identity;

/// The source location of an attribute. Each attribute has one, for the life of the process.
#[derive(Debug)]
pub struct Site {
    place: &'static str,
    is_known: AtomicBool,
}

/// The first site of each scope, up to [`MAX_SITES`], since scopes may be computed.
static SITES: Mutex<BTreeMap<(String, String), &'static Site>> = Mutex::new(BTreeMap::new());
const MAX_SITES: usize = 10_000;

impl Site {
    /// Creates the site of the attribute at this location.
    #[must_use]
    pub const fn new(place: &'static str) -> Self {
        Self { place, is_known: AtomicBool::new(false) }
    }

    /// Records the scope of the first call from this site, and warns if another attribute has the same scope.
    pub(crate) fn register_call(&'static self, identity: &Identity) {
        if self.is_known.load(Relaxed) || self.is_known.swap(true, Relaxed) {
            return;
        }
        let scope = &*identity.scope;
        let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (identity.scene.as_str().to_owned(), scope.to_owned());
        match sites.get(&name) {
            Some(first) => {
                let (scene, one, other) = (identity.scene.as_str(), first.place, self.place);
                tracing::warn!(target: "idempotent", scene, scope, one, other, "two handlers share one scope, so the keys of one \
                    are duplicates of the other's; give each handler a `scope` of its own");
            }
            None if sites.len() < MAX_SITES => drop(sites.insert(name, self)),
            None => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Scene;

    fn register(site: &'static Site, scope: String) {
        site.register_call(&Identity::new(Scene::Mq, scope, "k"));
    }

    fn first_site(scope: &str) -> Option<&'static Site> {
        SITES.lock().unwrap().get(&("mq".to_owned(), scope.to_owned())).copied()
    }

    #[test]
    fn the_first_site_of_each_scope_is_kept_up_to_a_limit() {
        static SITES_OF_ONE_SCOPE: [Site; 2] = [Site::new("one.rs:1"), Site::new("two.rs:2")];
        let [one, two] = &SITES_OF_ONE_SCOPE;
        for site in [one, two, one] {
            register(site, "shared".to_owned());
        }
        assert!(std::ptr::eq(first_site("shared").unwrap(), one));
        register(one, "another".to_owned());
        assert!(first_site("another").is_none(), "one scope for each site");
        for number in 0..=MAX_SITES {
            register(Box::leak(Box::new(Site::new("made.rs:1"))), format!("made {number}"));
        }
        assert_eq!(SITES.lock().unwrap().len(), MAX_SITES);
        assert!(first_site("made 0").is_some());
        assert!(first_site(&format!("made {MAX_SITES}")).is_none());
    }
}
