//! The RocketMQ adapter, whose client takes minutes to build. `test` and `check` leave it out; `test rocketmq` covers it.
use std::error::Error;
use std::path::Path;

use serde_json::Value;

use crate::tools::{cargo, root};

/// The package of the adapter.
pub(crate) const PACKAGE: &str = "idempotent-rocketmq";
/// The feature that enables the adapter in the facade, the examples and the applications. The names of its other
/// features begin with this name.
pub(crate) const FEATURE: &str = "rocketmq";

/// The features of test programs and of adapters that tests need, and no dependency enables.
const TESTED: [&str; 9] = [
    "idempotent-chaos/kafka",
    "idempotent-chaos/sqs",
    "idempotent-cli/kafka",
    "idempotent-cli/sqs",
    "idempotent-kafka/tls",
    "idempotent-kafka/zstd",
    "idempotent-tests/dynamodb",
    "idempotent-tests/kafka",
    "idempotent-tests/sqs",
];

/// Returns cargo's arguments for the workspace without the adapter, and with all other features.
pub(crate) fn everything_else() -> Result<Vec<String>, Box<dyn Error>> {
    let features = packages()?.iter().flat_map(features_of).collect::<Vec<_>>().join(",");
    Ok(without_adapter(features))
}

/// Returns cargo's arguments for the workspace without the adapter, and with all other features of the examples and
/// applications. Other tests enable features by their own dependencies, because some test a build without a feature.
pub(crate) fn tested() -> Result<Vec<String>, Box<dyn Error>> {
    let (apps, examples) = (root()?.join("apps"), root()?.join("examples"));
    let is_program = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().map(Path::new);
        manifest.is_some_and(|manifest| manifest.starts_with(&apps) || manifest.starts_with(&examples))
    };
    let packages = packages()?;
    let of_programs = packages.iter().filter(is_program).flat_map(features_of);
    let features = of_programs.chain(TESTED.map(str::to_owned)).collect::<Vec<_>>().join(",");
    Ok(without_adapter(features))
}

/// Returns cargo's arguments for all packages except the adapter, with these features.
fn without_adapter(features: String) -> Vec<String> {
    ["--workspace", "--exclude", PACKAGE, "--features"].map(str::to_owned).into_iter().chain([features]).collect()
}

/// Returns true for a feature that enables the adapter, or a part of it.
pub(crate) fn is_feature(name: &str) -> bool {
    name.starts_with(FEATURE)
}

/// Returns cargo's arguments for the packages that users depend on, with all other features.
pub(crate) fn published() -> Result<Vec<String>, Box<dyn Error>> {
    let packages = packages()?;
    let published = |package: &&Value| package["publish"].is_null() && package["name"] != PACKAGE;
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

/// Returns the features as `package/feature`, without those that enable the adapter.
fn features_of(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let features = package["features"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let others = features.filter(|feature| name != PACKAGE && !is_feature(feature));
    others.map(|feature| format!("{name}/{feature}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_brings_the_client_is_left_out() {
        let facade =
            json!({"name": "facade", "features": {"default": [], "redis": [], "rocketmq": [], "rocketmq-tls": []}});
        assert_eq!(features_of(&facade), ["facade/default", "facade/redis"]);
        assert!(features_of(&json!({"name": PACKAGE, "features": {"any": []}})).is_empty());
    }
}
