//! The names of keys as an operator writes them.
use idempotent_core::__private::CallerName;
use idempotent_core::{Identity, Key, KeyPart, Parts, Scene};

use crate::{OperateError, escaped};

/// A name for one key: the text of its storage key, or the parts that its handler uses.
///
/// ```
/// use idempotent_core::{Identity, Scene};
/// use idempotent_operate::{KeyAddress, KeyTenant};
///
/// let parts = KeyAddress::Parts {
///     namespace: "idempotent".into(),
///     tenant: KeyTenant::None,
///     scene: "mq".into(),
///     scope: "orders".into(),
///     parts: vec!["ann".into(), "17".into()],
/// };
/// // The handler's key is `(user, number)`.
/// let key = Identity::new(Scene::Mq, "orders", &("ann", 17)).key("idempotent")?;
/// assert_eq!(parts.key()?, key);
/// assert_eq!(KeyAddress::Text(key.as_str().into()).key()?, key);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum KeyAddress {
    /// The text of the storage key, as logs and listings show it.
    Text(String),
    /// The parts of the identity.
    Parts {
        /// The executor's namespace.
        namespace: String,
        /// The tenant, if the handler has one.
        tenant: KeyTenant,
        /// The scene: `mq`, `rest` or the name of a custom scene.
        scene: String,
        /// The handler's scope.
        scope: String,
        /// The parts of the key in their order. A number and its decimal text are the same part.
        parts: Vec<String>,
    },
}

/// The tenant of a key.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum KeyTenant {
    /// The handler has no tenant.
    #[default]
    None,
    /// The parts of the tenant in their order.
    Parts(Vec<String>),
    /// The name of an HTTP or gRPC caller, as in `Caller::named`.
    Caller(String),
    /// The callers without a name, as in `Caller::anonymous`.
    AnonymousCaller,
}

impl KeyAddress {
    /// Returns the key.
    ///
    /// # Errors
    /// [`Address`](OperateError::Address) if the text is no storage key, or [`Key`](OperateError::Key) if a part is
    /// empty or too long.
    pub fn key(&self) -> Result<Key, OperateError> {
        match self {
            Self::Text(text) => Key::from_text(text).ok_or_else(|| OperateError::Address { text: escaped(text) }),
            Self::Parts { namespace, tenant, scene, scope, parts } => {
                let identity = Identity::new(Scene::Named(scene.clone().into()), scope.clone(), &PartList(parts));
                let identity = match tenant {
                    KeyTenant::None => identity,
                    KeyTenant::Parts(parts) => identity.tenant(&PartList(parts)),
                    KeyTenant::Caller(name) => identity.tenant(&CallerName(Some(name))),
                    KeyTenant::AnonymousCaller => identity.tenant(&CallerName(None)),
                };
                Ok(identity.key(namespace)?)
            }
        }
    }
}

/// The parts of a key, whose number is known only at run time.
struct PartList<'a>(&'a [String]);

impl KeyPart for PartList<'_> {
    fn write_to(&self, parts: &mut Parts) {
        self.0.iter().for_each(|part| part.write_to(parts));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> KeyAddress {
        KeyAddress::Parts {
            namespace: "shop".into(),
            tenant: KeyTenant::Parts(vec!["acme".into(), "eu".into()]),
            scene: "billing".into(),
            scope: "invoices".into(),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        }
    }

    #[test]
    fn a_tenant_of_two_parts_and_a_custom_scene_are_parts_of_the_key() {
        let identity = Identity::new(Scene::Named("billing".into()), "invoices", "i-7").tenant(&("acme", "eu"));
        assert_eq!(parts(&["i-7"]).key().unwrap(), identity.key("shop").unwrap());
    }

    #[test]
    fn an_empty_part_and_a_text_of_another_form_are_refused() {
        for bad in [&[][..], &[""], &["a", ""]] {
            assert!(matches!(parts(bad).key(), Err(OperateError::Key(_))), "{bad:?}");
        }
        for text in ["", "orders", "shop:mq:orders:{short}", "shop:mq:orders:{Pv_mJFCxQoKrWCJDVdinc*}", "*"] {
            let error = KeyAddress::Text(text.into()).key().unwrap_err().to_string();
            assert!(error.contains("expected `NAMESPACE:SCENE:SCOPE:{HASH}`"), "{error}");
        }
    }
}
