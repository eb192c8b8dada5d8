//! The adapters and stores whose clients take minutes to build. `test` and `check` leave them out; `test clients` and `test rocketmq`
//! cover them.
use std::error::Error;
use std::path::Path;

use serde_json::Value;

use crate::tools::{cargo, root};

/// An adapter or a store whose client takes minutes to build.
#[derive(Debug)]
pub(crate) struct Heavy {
    /// The package that needs the client.
    pub(crate) package: &'static str,
    /// The feature of the facade that enables the adapter. The names of its other features begin with this name.
    pub(crate) feature: &'static str,
    /// The package that measures the adapter.
    pub(crate) bench: Option<&'static str>,
}

pub(crate) const ROCKETMQ: Heavy = Heavy { package: "idempotent-rocketmq", feature: "rocketmq", bench: None };
pub(crate) const KAFKA: Heavy =
    Heavy { package: "idempotent-kafka", feature: "kafka", bench: Some("idempotent-kafka-bench") };
pub(crate) const SQS: Heavy = Heavy { package: "idempotent-sqs", feature: "sqs", bench: Some("idempotent-sqs-bench") };
pub(crate) const DYNAMODB: Heavy = Heavy { package: "idempotent-dynamodb", feature: "dynamodb", bench: None };
const ALL: [Heavy; 4] = [ROCKETMQ, KAFKA, SQS, DYNAMODB];

/// Returns cargo's arguments for the workspace without these adapters, and with all other features.
pub(crate) fn everything_else() -> Result<Vec<String>, Box<dyn Error>> {
    let features = packages()?.iter().flat_map(features_of).collect::<Vec<_>>().join(",");
    Ok(without_adapters(features))
}

/// Returns cargo's arguments for the workspace without these adapters, and with all other features of the examples and
/// applications. Tests enable features by their own dependencies, because some test a build without a feature.
pub(crate) fn tested() -> Result<Vec<String>, Box<dyn Error>> {
    let (apps, examples) = (root()?.join("apps"), root()?.join("examples"));
    let is_program = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().map(Path::new);
        manifest.is_some_and(|manifest| manifest.starts_with(&apps) || manifest.starts_with(&examples))
    };
    let features = packages()?.iter().filter(is_program).flat_map(features_of).collect::<Vec<_>>().join(",");
    Ok(without_adapters(features))
}

/// Returns cargo's arguments for all packages except the adapters and their benches, with these features.
fn without_adapters(features: String) -> Vec<String> {
    let packages = ALL.iter().flat_map(|heavy| [heavy.package].into_iter().chain(heavy.bench));
    let excluded = packages.flat_map(|package| ["--exclude", package]);
    ["--workspace"].into_iter().chain(excluded).chain(["--features"]).map(str::to_owned).chain([features]).collect()
}

/// Returns true for the package of one of the adapters.
fn is_adapter(name: &str) -> bool {
    ALL.iter().any(|heavy| heavy.package == name)
}

/// Returns true for a feature that enables one of the adapters, or a part of it.
pub(crate) fn is_feature(name: &str) -> bool {
    ALL.iter().any(|heavy| name.starts_with(heavy.feature))
}

/// Returns cargo's arguments for the packages that users depend on, with all other features.
pub(crate) fn published() -> Result<Vec<String>, Box<dyn Error>> {
    let packages = packages()?;
    let published =
        |package: &&Value| package["publish"].is_null() && !package["name"].as_str().is_some_and(is_adapter);
    let features = packages.iter().filter(published).flat_map(features_of).collect::<Vec<_>>().join(",");
    let names = packages.iter().filter(published).filter_map(|package| package["name"].as_str());
    let names = names.flat_map(|name| ["--package".to_owned(), name.to_owned()]);
    Ok(names.chain(["--features".to_owned(), features]).collect())
}

/// Returns the packages as cargo describes them.
pub(crate) fn packages() -> Result<Vec<Value>, Box<dyn Error>> {
    let output = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"])?.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(metadata["packages"].as_array().ok_or("cargo metadata without packages")?.clone())
}

/// Returns the features as `package/feature`, without those that enable one of the adapters.
fn features_of(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let features = package["features"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let others = features.filter(|feature| !is_adapter(name) && !is_feature(feature));
    others.map(|feature| format!("{name}/{feature}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn adapters_and_their_benches_are_left_out() {
        let arguments = without_adapters(String::new());
        for package in [KAFKA.package, "idempotent-kafka-bench", "idempotent-sqs-bench"] {
            assert!(arguments.windows(2).any(|pair| pair == ["--exclude", package]), "{package}: {arguments:?}");
        }
    }

    #[test]
    fn only_what_brings_the_client_is_left_out() {
        let facade =
            json!({"name": "facade", "features": {"default": [], "redis": [], "rocketmq": [], "kafka-tls": []}});
        assert_eq!(features_of(&facade), ["facade/default", "facade/redis"]);
        assert!(features_of(&json!({"name": KAFKA.package, "features": {"any": []}})).is_empty());
    }
}
