//! Comparison of the REST guide with the code: anchors, statuses, the OpenAPI description.
use std::collections::BTreeSet;

use idempotent::http::{Problem, ProblemKind};
use yaml_rust2::{Yaml, YamlLoader};

const GUIDE: &str = include_str!("../../../guides/http.md");

fn openapi() -> Yaml {
    YamlLoader::load_from_str(include_str!("../../../guides/openapi.yaml")).unwrap().remove(0)
}

/// rustdoc makes the heading the anchor.
#[test]
fn each_problem_has_a_section_that_its_type_points_to() {
    assert!(Problem::BASE.ends_with("/idempotent/docs/http/index.html#"));
    let sections: BTreeSet<_> =
        GUIDE.lines().filter_map(|line| line.strip_prefix("#### `")?.strip_suffix('`')).collect();
    let codes: BTreeSet<_> = ProblemKind::ALL.map(ProblemKind::code).into();
    assert_eq!(sections, codes);
    for kind in ProblemKind::ALL {
        let (code, status) = (kind.code(), kind.status().as_u16());
        let (_, section) = GUIDE.split_once(&format!("#### `{code}`\n")).unwrap();
        let retryable = if kind.is_retryable() { ", retryable" } else { "" };
        assert!(section.starts_with(&format!("{status}{retryable}. ")), "{code}");
    }
}

#[test]
fn each_problem_has_its_place_in_the_table_for_clients() {
    for kind in ProblemKind::ALL {
        let (code, status) = (kind.code(), kind.status().as_u16());
        let row = GUIDE.lines().find(|line| line.starts_with("| ") && line.contains(&format!("(#{code})"))).unwrap();
        assert!(row.starts_with(&format!("| {status} ")), "{row}");
    }
}

#[test]
fn the_openapi_description_lists_each_code_with_its_status() {
    let components = &openapi()["components"];
    let listed = components["schemas"]["Problem"]["properties"]["code"]["enum"].as_vec().unwrap();
    let listed: Vec<_> = listed.iter().map(|code| code.as_str().unwrap()).collect();
    assert_eq!(listed, ProblemKind::ALL.map(ProblemKind::code));
    let responses = components["responses"].as_hash().unwrap();
    let mut told = 0;
    for (name, response) in responses {
        let status: u16 = name.as_str().unwrap().strip_prefix("Idempotency").unwrap().parse().unwrap();
        let codes = ProblemKind::ALL.into_iter().filter(|kind| kind.status() == status).map(ProblemKind::code);
        let codes: Vec<_> = codes.collect();
        assert_eq!(response["description"].as_str().unwrap(), codes.join(", "));
        told += codes.len();
    }
    assert_eq!(told, ProblemKind::ALL.len());
}

/// Problems have the documented format.
#[test]
fn the_openapi_description_requires_the_fields_that_a_problem_has() {
    let problem = &openapi()["components"]["schemas"]["Problem"];
    let required = problem["required"].as_vec().unwrap().iter().map(|field| field.as_str().unwrap().to_owned());
    let body: serde_json::Value =
        serde_json::from_slice(Problem::new(ProblemKind::InFlight).to_response().body()).unwrap();
    let written: BTreeSet<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(required.collect::<BTreeSet<_>>(), written);
}

#[test]
fn each_reference_in_the_openapi_description_leads_somewhere() {
    fn look(all: &Yaml, here: &Yaml, found: &mut usize) {
        match here {
            Yaml::Hash(hash) => hash.iter().for_each(|(name, value)| {
                if name.as_str() == Some("$ref") {
                    let path = value.as_str().unwrap().strip_prefix("#/").unwrap();
                    let target = path.split('/').fold(all, |at, name| &at[name]);
                    assert!(!target.is_badvalue(), "{path}");
                    *found += 1;
                }
                look(all, value, found);
            }),
            Yaml::Array(array) => array.iter().for_each(|value| look(all, value, found)),
            _ => {}
        }
    }
    let (all, mut found) = (openapi(), 0);
    look(&all, &all, &mut found);
    assert!(found > 10);
}
