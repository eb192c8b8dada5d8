//! The samples and the published schemas.
use std::fs;

use idempotent_deploy_samples::documents;
use idempotent_harness::servers::unpacked;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::checkout;

/// Reads a schema of a package that `cargo xtask setup` has unpacked.
fn schema(file: &str) -> Value {
    let path = unpacked("schemas").join(file);
    let text = fs::read_to_string(&path);
    let text = text.unwrap_or_else(|e| panic!("{}: {e}: `cargo xtask setup` unpacks it", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn compose() -> Value {
    documents(&checkout().join("deploy/compose/compose.yaml")).unwrap().remove(0)
}

#[test]
fn the_compose_file_satisfies_the_schema_of_compose() {
    let validator =
        jsonschema::draft7::new(&schema("check-jsonschema/check_jsonschema/builtin_schemas/vendor/compose-spec.json"))
            .unwrap();
    assert_eq!(errors(&validator, &compose()), Vec::<String>::new());
    let mut broken = compose();
    broken["services"]["worker"]["stop_grace_perod"] = json!("30s");
    assert_ne!(errors(&validator, &broken), Vec::<String>::new());
}

/// The strict schemas of Kubernetes, in which an unknown field is an error.
const STRICT: &str =
    "kubernetes-validate/kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json";

/// Returns the validator of a manifest's kind.
fn validator(schemas: &Value, manifest: &Value) -> Validator {
    let (group, version) = match manifest["apiVersion"].as_str().unwrap().split_once('/') {
        Some(pair) => pair,
        None => ("", manifest["apiVersion"].as_str().unwrap()),
    };
    let kind = json!({ "group": group, "version": version, "kind": manifest["kind"] });
    let is_it = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&kind))
    };
    let mut names = schemas["$defs"].as_object().unwrap().iter().filter(|(_, schema)| is_it(schema));
    let (name, _) = names.next().unwrap_or_else(|| panic!("no schema of {kind}"));
    let whole = json!({ "$defs": schemas["$defs"], "$ref": format!("#/$defs/{name}") });
    jsonschema::draft202012::new(&whole).unwrap()
}

#[test]
fn each_manifest_satisfies_the_strict_schema_of_its_kind() {
    let (schemas, mut seen) = (schema(STRICT), 0);
    for entry in fs::read_dir(checkout().join("deploy/kubernetes")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("kustomization.yaml") {
            continue;
        }
        for mut manifest in documents(&path).unwrap() {
            seen += 1;
            let validator = validator(&schemas, &manifest);
            assert_eq!(errors(&validator, &manifest), Vec::<String>::new(), "{}", path.display());
            manifest["spec"]["terminationGracePeriod"] = json!(30);
            assert_ne!(errors(&validator, &manifest), Vec::<String>::new(), "{}", path.display());
        }
    }
    assert!(seen >= 15, "{seen} manifests");
}
