//! Settings of a layer in a configuration file.
use http::Method;
use idempotent_core::__private::{HumaneSize, HumaneTime};
use idempotent_core::Policy;
use serde::de::{Deserialize, Deserializer, Error};

use crate::IdempotencyLayer;

/// The settings of a layer that a configuration file contains, under the names of the methods of [`IdempotencyLayer`].
///
/// Durations are written as `"30s"` or `"1h 30m"`, sizes as `"2MiB"` or as a number of bytes, and methods in capitals.
/// An unknown name is an error that lists the known ones.
///
/// `window` and `replay` take precedence over what `policy` says about them.
///
/// ```
/// use idempotent_tower::LayerSettings;
///
/// let text = r#"{ "methods": ["POST", "PUT"], "max_body": "1MiB", "policy": { "lease": "10s", "retain": "7d" } }"#;
/// let settings: LayerSettings = serde_json::from_str(text)?;
/// # drop(settings);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayerSettings {
    required: Option<bool>,
    #[serde(deserialize_with = "methods")]
    methods: Option<Vec<Method>>,
    scope: Option<String>,
    namespace: Option<String>,
    max_body: Option<HumaneSize>,
    message: Option<String>,
    window: Option<HumaneTime>,
    replay: Option<bool>,
    policy: Option<Policy>,
    cancel_on_disconnect: Option<bool>,
    problem_base: Option<String>,
    docs_link: Option<String>,
}

/// Reads methods. One in small letters would be another method, so that no request would be protected.
fn methods<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Method>>, D::Error> {
    let method = |name: &String| {
        let is_upper = name.chars().all(|char| !char.is_ascii_lowercase());
        Method::try_from(&**name).ok().filter(|_| is_upper).ok_or_else(|| {
            D::Error::custom(format!("`methods`: `{name}` is no method; write it in capitals, as in \"POST\""))
        })
    };
    let names = Option::<Vec<String>>::deserialize(from)?;
    names.map(|names| names.iter().map(method).collect()).transpose()
}

impl IdempotencyLayer {
    /// Applies the settings of a configuration file. A setting that the file does not contain stays as it is, except that
    /// a `retain` of the policy replaces a window.
    pub fn settings(self, settings: &LayerSettings) -> Self {
        fn set<T>(
            layer: IdempotencyLayer,
            value: Option<T>,
            apply: fn(IdempotencyLayer, T) -> IdempotencyLayer,
        ) -> IdempotencyLayer {
            match value {
                Some(value) => apply(layer, value),
                None => layer,
            }
        }
        let text = settings.clone();
        let layer = set(self, settings.policy, Self::policy);
        let layer = set(layer, settings.required, Self::required);
        let layer = set(layer, text.methods, Self::methods);
        let layer = set(layer, text.scope, Self::scope);
        let layer = set(layer, text.namespace, Self::namespace);
        let layer = set(layer, settings.max_body.map(Into::into), Self::max_body);
        let layer = set(layer, text.message, Self::message);
        let layer = set(layer, settings.window.map(Into::into), Self::window);
        let layer = set(layer, settings.replay, Self::replay);
        let layer = set(layer, settings.cancel_on_disconnect, Self::cancel_on_disconnect);
        let layer = set(layer, text.problem_base, Self::problem_base);
        set(layer, text.docs_link, |layer, uri| layer.docs_link(&uri))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use idempotent_core::{Executor, MemoryStore, OnConsumed};

    use super::*;
    use crate::Principal;
    use crate::layer::config::{KeyScope, KeySource};

    fn with(text: &str) -> IdempotencyLayer {
        let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none());
        layer.scope("kept").settings(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn each_setting_of_a_file_is_applied() {
        let IdempotencyLayer { config } = with(
            r#"{ "required": false, "methods": ["PUT"], "scope": "orders", "namespace": "shop", "max_body": "1MiB",
                "message": "sent already", "window": "7s", "replay": false, "policy": { "lease": "10s" },
                "cancel_on_disconnect": true, "problem_base": "https://api.example.com/", "docs_link": "https://a.example" }"#,
        );
        assert!(matches!(config.key_source, KeySource::Key { required: false, .. }));
        assert!(matches!(&config.scope, KeyScope::Named(scope) if scope == "orders"));
        assert_eq!(
            (config.methods, config.prefix.as_deref(), config.max_body),
            (vec![Method::PUT], Some("shop"), 1 << 20)
        );
        let policy = Policy::new().lease(Duration::from_secs(10)).window(Duration::from_secs(7));
        assert_eq!(config.policy, policy.on_consumed(OnConsumed::Refuse));
        assert!(config.message.is_some() && !config.detached && config.base == "https://api.example.com/");
        assert!(config.docs.is_some_and(|link| link.to_str().unwrap().contains("https://a.example")));
    }

    #[test]
    fn a_setting_that_the_file_lacks_or_leaves_empty_stays() {
        let empty = r#"{ "methods": null, "policy": null, "required": null }"#;
        let (IdempotencyLayer { config }, default) = (with(empty), IdempotencyLayer::by_param);
        let default = default(Executor::new(MemoryStore::new()), Principal::none()).config;
        assert!(matches!(&config.scope, KeyScope::Named(scope) if scope == "kept"));
        assert!(matches!(config.key_source, KeySource::Key { required: true, .. }));
        assert_eq!((config.methods, config.max_body, config.base), (default.methods, default.max_body, default.base));
        assert!(config.policy == Policy::new() && config.detached && config.message.is_none());
    }

    #[test]
    fn a_method_in_small_letters_and_an_unknown_setting_are_errors_that_name_them() {
        for (text, part) in [
            (r#"{ "methods": ["POST", "put"] }"#, "`put` is no method"),
            (r#"{ "methods": ["P UT"] }"#, "`P UT` is no method"),
            (r#"{ "require": true }"#, "`require`"),
            (r#"{ "policy": { "leese": "1s" } }"#, "did you mean `lease`?"),
        ] {
            let error = serde_json::from_str::<LayerSettings>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
