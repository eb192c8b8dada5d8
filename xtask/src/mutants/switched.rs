//! Mutation tests with one build for all mutants. A build for each mutant takes most of the time of a mutation test. Here,
//! each mutant of cargo-mutants is a branch of the source, and an environment variable selects one. Each mutant is tested
//! with the tests that reach its branch.
mod build;
mod rewrite;
mod runs;

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

use self::build::{SwitchedBuild, programs};
use self::rewrite::Mutant;
use self::runs::{TestProgram, concurrently};
use super::areas::Area;
use super::page::Figures;
use super::tool::Tool;
use crate::tools::{cargo, target};

/// Tests all mutants of the files, which belong to the area. Passes each file's figures and survivors to `note`.
///
/// # Errors
/// The mutants cannot be listed or built, a test fails without a mutant, or `note` fails.
pub(super) fn mutate(
    tool: &Tool,
    area: &'static Area,
    files: &[String],
    mut note: impl FnMut(&str, Figures, &[String]) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    if files.is_empty() {
        return Ok(());
    }
    let mutants: Vec<_> = tool.list(area, files)?.iter().filter_map(Mutant::read).collect();
    let mut build = SwitchedBuild { tree: tool.tree(), area, mutants, unviable: [].into() };
    let program = cargo(&[])?.get_program().to_owned();
    let in_tree = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words);
        tool.in_tree(command)
    };
    build.prepare(in_tree)?;
    let mut tests = Vec::new();
    for set in area.test_sets.iter().chain(area.slow_test_sets) {
        let folder = folder(tool, set.package)?;
        for program in programs(set, in_tree(&["test"]))? {
            tests.push(TestProgram::observe(&program, &folder, set.run_arguments(), &target()?.join("mutants"))?);
        }
    }
    for file in files {
        let ids: Vec<_> = (1..).zip(&build.mutants).filter(|(_, mutant)| mutant.file == *file).collect();
        let viable: Vec<_> = ids.iter().filter(|(id, _)| !build.unviable.contains(id)).collect();
        let caught = concurrently(&viable, |_, (id, _)| tests.iter().any(|program| program.detects(*id)));
        let survivors = viable.iter().zip(&caught).filter(|(_, caught)| !**caught);
        let survivors: Vec<_> = survivors.map(|((_, mutant), _)| mutant.name.clone()).collect();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let figures = Figures {
            mutants: count(ids.len()),
            caught: count(viable.len() - survivors.len()),
            unviable: count(ids.len() - viable.len()),
            survived: count(survivors.len()),
        };
        note(file, figures, &survivors)?;
    }
    tool.restore()
}

/// Returns the folder of a package in the clone.
fn folder(tool: &Tool, package: &str) -> Result<PathBuf, Box<dyn Error>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"])?.current_dir(tool.tree()).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages.filter(|found| found["name"] == package).find_map(|found| found["manifest_path"].as_str());
    let manifest = PathBuf::from(manifest.ok_or_else(|| format!("the workspace has no package {package}"))?);
    Ok(manifest.parent().ok_or("a manifest without a folder")?.to_owned())
}
