//! The samples and the published schemas.
use std::fs;

use idempotent_deploy_samples::documents;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::checkout;

fn schema(file: &str) -> Value {
    let path = checkout().join("tests/deploy/schemas").join(file);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn compose() -> Value {
    documents(&checkout().join("deploy/compose/compose.yaml")).unwrap().remove(0)
}

#[test]
fn the_compose_file_satisfies_the_schema_of_compose() {
    let validator = jsonschema::draft7::new(&schema("compose.json")).unwrap();
    assert_eq!(errors(&validator, &compose()), Vec::<String>::new());
    let mut broken = compose();
    broken["services"]["worker"]["stop_grace_perod"] = json!("30s");
    assert_ne!(errors(&validator, &broken), Vec::<String>::new());
}

/// Returns the validator of a kind.
fn validator(kind: &str) -> Validator {
    let mut schema = schema("kubernetes.json");
    let definition = schema["kinds"][kind].as_str().unwrap_or_else(|| panic!("no schema of {kind}")).to_owned();
    schema["$ref"] = json!(format!("#/definitions/{definition}"));
    schema.as_object_mut().unwrap().remove("kinds");
    // Draft 7 ignores what is next to `$ref`.
    let whole = json!({ "definitions": schema["definitions"], "allOf": [{ "$ref": schema["$ref"] }] });
    jsonschema::draft7::new(&whole).unwrap()
}

#[test]
fn each_manifest_satisfies_the_strict_schema_of_its_kind() {
    let mut seen = 0;
    for entry in fs::read_dir(checkout().join("deploy/kubernetes")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("kustomization.yaml") {
            continue;
        }
        for mut manifest in documents(&path).unwrap() {
            seen += 1;
            let validator = validator(manifest["kind"].as_str().unwrap());
            assert_eq!(errors(&validator, &manifest), Vec::<String>::new(), "{}", path.display());
            manifest["spec"]["terminationGracePeriod"] = json!(30);
            assert_ne!(errors(&validator, &manifest), Vec::<String>::new(), "{}", path.display());
        }
    }
    assert!(seen >= 15, "{seen} manifests");
}
